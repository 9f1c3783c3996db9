"""Writes packages of kernels."""

from __future__ import annotations

import json
import re
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import astuple, dataclass
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

from evo.packaging.cpp import Source, identifier
from evo.packaging.cpp_files import FOLDER, NVCC_OPTIONS, cpp_files
from evo.packaging.subject import Subject, packed_by
from evo.packaging.vendored import ENGINE, ROOT, relative, vendored
from evo.packaging.words import lineage_text, readme_text, verdict_text
from fitness.cpu import build as cpu
from fitness.cpu.cores import plan_facts
from fitness.evaluation import Rejection
from fitness.package import cases, loading
from fitness.signature import Param
from operators.definition.portable import signature
from operators.errors import UserError
from operators.plan.header import read_header
from operators.plan.reading import Plan, parse_plan
from operators.prelude import prelude

CARRIED = Path(loading.__file__).parent
LOADERS = {"cuda": "on_cuda", "cpu": "on_cpu"}
H200 = {"sm_count": 132, "warp_size": 32, "max_shared_bytes": 232448, "l2_bytes": 50 << 20}
"""What stands in for a GPU where a plan's conditions are asked while a package is written."""
LICENSES = """// {operator}, kernel {id}, {origin}.
// SPDX-License-Identifier: Apache-2.0 (see LICENSE), as far as it was made by kernel-evo or from its kernels; what you
// or others wrote yourselves stays under your own licence.
"""


def write_package(subject: Subject, folder: Path) -> None:
    """Write a package into a folder that is not there yet, or is empty. It raises UserError, and leaves nothing."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UserError(f"{folder}: is there already; name a folder that is not, nothing is overwritten")
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        scratch = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    except OSError as error:
        raise UserError(f"{folder}: cannot be made: {error.strerror}") from None
    try:
        for path, content in _files(subject, scratch, folder.name).items():
            place = scratch / path
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(content.encode() if isinstance(content, str) else content)
        scratch.chmod(0o755)
        scratch.replace(folder)
    except OSError as error:
        raise UserError(f"{folder}: cannot be written: {error.strerror}") from None
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _files(subject: Subject, scratch: Path, name: str) -> dict[str, str | bytes]:
    operator, dtype, target = subject.operator, subject.task.dtype, subject.task.target
    plan = parse_plan(subject.kernel.source, operator, target, name="kernel").for_dtype(dtype)
    facts = H200 if target == "cuda" else plan_facts(1)
    head = LICENSES.format(operator=operator.name, id=subject.kernel.id, origin=_harmless(subject.origin))
    made = _cuda(subject, plan, head) if target == "cuda" else _cpu(subject, plan, head, scratch)
    module = LOADERS[target]
    files: dict[str, str | bytes] = dict(vendored(*_roots(module)))
    files |= made.files
    files["plan.json"] = json.dumps(_plan(subject, plan, made), indent=1) + "\n"
    files["kernel.py"] = relative(
        f"fitness.package.{module}", (CARRIED / f"{module}.py").read_text(encoding="utf-8"), f".{ENGINE}."
    )
    about = f'"""{operator.name}, {dtype}: a kernel of kernel-evo; see README.md."""'
    files["__init__.py"] = f'{about}\n\nfrom .kernel import load\n\n__all__ = ["load"]\n'
    files["test_kernel.py"] = (CARRIED / "test_template.py").read_text(encoding="utf-8")
    stored = cases.cases(operator, plan, dtype, subject.kernel.values, facts)
    files["cases.npz"] = stored
    settings = plan.settings(subject.kernel.values)
    source = Source(identifier(name), operator, dtype, plan, settings, made.params, made.more.get("symbols", {}))
    files |= cpp_files(source, head, stored, made.cmake)
    for each in ("operator.toml", "reference.py"):
        files[f"operator/{each}"] = (operator.folder / each).read_text(encoding="utf-8")
    files["VERDICT.md"] = verdict_text(subject)
    said: dict[str, Any] = {"task": str(subject.task), "kernel_id": subject.kernel.id}
    said |= {
        "conditions": dict(subject.conditions),
        "packed_by": packed_by(),
        "verdict": subject.verdict,
        "lineage": list(subject.lineage),
    }
    files["verdict.json"] = json.dumps(said, indent=1, default=str) + "\n"
    files["LINEAGE.md"] = lineage_text(subject)
    files["LICENSE"] = _license()
    files["README.md"] = readme_text(subject, name=name, arch=made.more.get("arch", ""))
    return files


@dataclass(frozen=True)
class _Made:
    """The code of a package, and what a loader must know to compile and call it."""

    files: Mapping[str, str | bytes]
    params: Mapping[str, tuple[Param, ...]]
    more: Mapping[str, Any]
    """What plan.json has besides."""
    cmake: Mapping[str, str]
    """What CMakeLists.txt is told."""


def _cuda(subject: Subject, plan: Plan, head: str) -> _Made:
    from fitness.cuda.build import ARCH, compile_cuda
    from fitness.cuda.compiler import Compiler
    from fitness.cuda.driver import present_arch
    from fitness.cuda.nvrtc import HEADERS, OPTIONS, Job, include_folders

    kernel, operator, dtype = subject.kernel, subject.operator, subject.task.dtype
    built = compile_cuda(kernel, operator, dtype, arch=present_arch(ARCH))
    if isinstance(built, Rejection):
        raise UserError(f"the kernel does not compile here: {built.message}")
    ahead = prelude(operator, plan, target="cuda", dtype=dtype, values=kernel.values).removesuffix("#line 1\n")
    names = ", ".join(f"(const void*)({name})" for name in built.lowered)
    # A template has code only where something names it; NVRTC is told the names instead.
    kept = f"\n#ifndef __CUDACC_RTC__\nextern const void* const evo_kernels[] = {{{names}}};\n#endif\n"
    unit = f"{head}{ahead}\n{kernel.source.removeprefix(chr(0xFEFF))}{kept}"
    # What is judged has the library's tables elsewhere, where nothing can write to them; this is the code as it stands.
    with Compiler() as compiler:
        job = Job(unit, tuple(built.lowered), built.arch, tuple(map(str, include_folders())))
        compiled = compiler.compile(job)
    if compiled.lowered != built.lowered:
        raise UserError(f"the kernel does not compile alone: {compiled.log}")
    settings = {"options": [o for o in OPTIONS if "ptxas" not in o], "headers": HEADERS}
    more = {"nvrtc": settings, "arch": built.arch, "symbols": dict(built.lowered)}
    files: dict[str, str | bytes] = {"kernel.cu": unit, f"{FOLDER}/kernel.{built.arch}.cubin": compiled.cubin}
    return _Made(files, built.params, more, {"ARCH": built.arch, "NVCC_OPTIONS": NVCC_OPTIONS})


def _cpu(subject: Subject, plan: Plan, head: str, scratch: Path) -> _Made:
    kernel, operator, dtype = subject.kernel, subject.operator, subject.task.dtype
    with tempfile.TemporaryDirectory(dir=scratch) as folder:
        built = cpu.build(kernel, plan, operator, dtype=dtype, folder=Path(folder), resolved="")
    if isinstance(built, Rejection):
        raise UserError(f"the kernel does not compile here: {built.message}")
    unit = cpu.translation_unit(kernel, plan, operator, dtype=dtype, launches=built.launches)
    unit = re.sub(r'^#line 1(?: ".*")?\n', "", unit, flags=re.MULTILINE)
    settings = {"flags": list(cpu.FLAGS), "libraries": list(cpu.LIBRARIES)}
    params = {name: built.params[name] for name in built.launches}
    told = {"FLAGS": " ".join(cpu.FLAGS), "LIBRARIES": " ".join(cpu.LIBRARIES)}
    return _Made({"kernel.cpp": head + unit}, params, {"gcc": settings}, told)


def _plan(subject: Subject, plan: Plan, made: _Made) -> dict[str, Any]:
    kernel, operator = subject.kernel, subject.operator
    return {
        "format": loading.FORMAT,
        "kernel_id": kernel.id,
        "target": subject.task.target,
        "dtype": subject.task.dtype,
        "operator": signature(operator),
        "values": plan.settings(kernel.values),
        "header": _header(kernel.source),
        "params": {name: [astuple(param) for param in params] for name, params in made.params.items()},
        **made.more,
    }


def _harmless(text: str) -> str:
    """A text that stays in a comment of one line."""
    return "".join(c if c.isprintable() and c != "\\" else "?" for c in text)


def _header(source: str) -> str:
    return "\n" + read_header(source).text.lstrip("\n")


def _roots(module: str) -> list[str]:
    text = (CARRIED / f"{module}.py").read_text(encoding="utf-8")
    found = re.findall(r"^from ((?:operators|fitness)[\w.]*) import (\w+)", text, re.MULTILINE)
    return [f"{where}.{name}" if where == "fitness.cuda" else where for where, name in found]


def _license() -> str:
    beside = ROOT / "LICENSE"
    if beside.is_file():
        return beside.read_text(encoding="utf-8")
    try:
        return distribution("kernel-evo").read_text("licenses/LICENSE") or "Apache-2.0\n"
    except PackageNotFoundError:
        return "SPDX-License-Identifier: Apache-2.0, https://www.apache.org/licenses/LICENSE-2.0\n"
