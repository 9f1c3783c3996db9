"""Writes packages of kernels."""

from __future__ import annotations

import ast
import hashlib
import json
import platform
import re
import shutil
import tempfile
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, astuple, dataclass, field
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evo.evaluate import source_of, target_of, task_of
from evo.packaging.cpp import Source, identifier
from evo.packaging.cpp_files import FOLDER, NVCC_OPTIONS, cpp_files
from evo.packaging.runtime import cases, loading
from evo.report.amounts import count
from evo.report.document import bounds, number, text
from evo.report.output import plain
from evo.report.render import markdown_table
from evo.report.status import best_of
from evo.version import engine_version
from fitness.cpu import build as cpu
from fitness.cpu.cores import plan_facts
from fitness.evaluation import Rejection, interval95
from fitness.judging.signature import Param
from fitness.words import digits, ratio, speedup, standing, time_us
from operators.catalog import load, load_among
from operators.champions import champions, is_as_judged
from operators.definition.portable import signature
from operators.definition.spec import CHAMPIONS, Operator, Task
from operators.errors import UserError, unknown
from operators.files import writing
from operators.identity import short
from operators.kernel import Kernel
from operators.plan.header import read_header
from operators.plan.reading import Plan, parse_plan
from operators.prelude import prelude

if TYPE_CHECKING:
    from evo.api import Run


@dataclass(frozen=True)
class Subject:
    """A kernel to take away."""

    operator: Operator
    task: Task
    kernel: Kernel
    origin: str
    """Where it is from, in words."""
    verdict: Mapping[str, Any] | None
    """The verdict in the form of verdict.json; None: it was never judged there."""
    conditions: Mapping[str, Any] = field(default_factory=dict)
    """Conditions of the verdict: device, driver, versions."""
    lineage: Sequence[Mapping[str, Any]] = ()
    """Its ancestors and itself, parents before children."""


def from_run(run: Run, task: str = "", option: str = "--package") -> Subject:
    """Return the best kernel of a run's task, for an `option`. It raises UserError where there is none, or several."""
    (best,), config = best_of(run, task, option), run.config
    wanted = Task.parse(best.task)
    operator = load_among(wanted.operator, config["operators"])
    row = run.row
    host = {"engine_version": row["engine_version"], **json.loads(row["host_json"])}
    if threads := config.get("threads"):
        host["threads"] = threads
    shown = {"run": run.id, "workload_set": config.get("workload_set", "")}
    return Subject(
        operator,
        wanted,
        Kernel(best.operator, best.target, best.source, best.values),
        f"run {run.id} of kernel-evo",
        {**shown, **plain(asdict(best.verdict))} if best.verdict else None,
        host,
        [plain(asdict(each)) for each in run.lineage(best.id, best.task)],
    )


def from_file(operator_name: str, name: str, *, target: str = "", dtype: str = "") -> Subject:
    """Return a kernel file, or one of the operator's own by its name, such as `champions/h200`. It raises UserError."""
    operator = load(operator_name)
    file = Path(name)
    if not file.suffix:
        known = {f"{each}.cu": "cuda" for each in _names(operator, "cuda")}
        known |= {f"{each}.cpp": "cpu" for each in _names(operator, "cpu")}
        matches = [each for each in known if each.rpartition(".")[0] == name and target in ("", known[each])]
        if not matches:
            raise UserError(unknown("kernel", name, {each.rpartition(".")[0] for each in known}))
        if len(matches) > 1:
            raise UserError(f"{name}: operator {operator.name} has {' and '.join(matches)}: say --target cpu or cuda")
        file = operator.folder / matches[0]
    task = task_of(operator, target or target_of(file), dtype)
    ours = file.resolve().is_relative_to(operator.folder.resolve())
    origin = f"{operator.name}'s own {file.name}" if ours else f"the file {file.name}"
    judged = champions(operator.folder) if ours and file.parent.name == CHAMPIONS else ()
    named = (c for c in judged if c.file == file.name and c.dtype == task.dtype)
    record = next((c for c in named if is_as_judged(operator.folder, c)), None)
    kernel = Kernel(operator.name, task.target, source_of(file))
    author = record.author if record else None
    itself: dict[str, Any] = {"kernel_id": kernel.id, "parents": [], "mutator": "file", "author": author}
    itself["description"] = origin
    verdict = record.model_dump(mode="json") if record else None
    conditions = {"device": record.device} if record else {}
    return Subject(operator, task, kernel, origin, verdict, conditions, [itself])


def _names(operator: Operator, target: str) -> list[str]:
    champions_of = {name for dtype in operator.dtypes.get(target, ()) for name in operator.champions(target, dtype)}
    return [*operator.ancestors(target), *sorted(champions_of)]


ROOT = Path(__file__).parents[2]
OURS = ("operators", "fitness", "evo")
ENGINE = "engine"
"""The folder in a package that they lie in."""
_IMPORT = re.compile(rf"^(\s*)from ((?:{'|'.join(OURS)})(?:\.\w+)*) import ", re.MULTILINE)
NOTE = "# A copy of kernel-evo's {module}, its imports made relative; Apache-2.0, see LICENSE.\n"


def vendored(*roots: str) -> dict[str, str]:
    """Return the files, by path in the package, of these modules and of all of ours that they import."""
    files: dict[str, str] = {}
    for module in _closure(roots):
        path = Path(ENGINE, *module.split("."))
        files[f"{path}.py"] = relative(module, _path(module).read_text(encoding="utf-8"), "." * (module.count(".") + 1))
        for folder in path.parents:
            if folder != Path():
                files.setdefault(str(folder / "__init__.py"), '"""Parts of kernel-evo that this kernel needs."""\n')
    return dict(sorted(files.items()))


def relative(module: str, text: str, prefix: str) -> str:
    """Return a module's text with imports of ours relative; `prefix` leads from it to the folder that holds them."""
    return NOTE.format(module=module) + _IMPORT.sub(rf"\1from {prefix}\2 import ", text)


def _closure(roots: Sequence[str]) -> set[str]:
    found: set[str] = set()
    waiting = list(roots)
    while waiting:
        module = waiting.pop()
        if module not in found:
            found.add(module)
            waiting += _imported(module)
    return found


def _imported(module: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(_path(module).read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import) and any(name.name.split(".")[0] in OURS for name in node.names):
            raise ValueError(f"{module} says `import {node.names[0].name}`; packages copy `from ... import ...` alone")
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] in OURS:
            inside = [f"{node.module}.{name.name}" for name in node.names]
            yield from [name for name in inside if _path(name).is_file()] or [node.module]


def _path(module: str) -> Path:
    return ROOT.joinpath(*module.split(".")).with_suffix(".py")


UNCONFIRMED = (
    "**Not confirmed.** These figures are of level `{level}`: they were not repeated, and the luckiest of "
    "many kernels looks faster than it is. `evo resume RUN --confirm` confirms what leads."
)
FLAGGED = (
    "**Flagged.** Its machine code {reasons}. That is allowed, and with it a kernel may tell a timed call from a "
    "checked one: read it before you trust the figures."
)
NEVER = "Never judged where this package was made. `evo evaluate {operator} FILE` judges it as severely as a new best."


def verdict_text(subject: Subject) -> str:
    """VERDICT.md."""
    lines = [f"# Verdict on {short(subject.kernel.id)} ({subject.task})", ""]
    verdict = subject.verdict
    if verdict is None:
        return "\n".join([*lines, NEVER.format(operator=subject.operator.name), ""])
    if verdict.get("level") != "confirmed":
        lines += [UNCONFIRMED.format(level=verdict.get("level")), ""]
    lines += [f"From {subject.origin}; status {verdict.get('status')}, level {verdict.get('level')}.", ""]
    if verdict.get("flagged"):
        lines += [FLAGGED.format(reasons=verdict["flagged"]), ""]
    if verdict.get("speedup"):
        found = speedup(verdict["speedup"], verdict["speedup_low"], verdict["speedup_high"])
        lines += [f"{found}: the naive kernel's time over this one's, a geometric mean over the workloads.", ""]
    lines += _timed("Against the kernel it was timed in pairs with", "other", verdict.get("timings", ()))
    lines += _timed("Against the vendor's library", "library", verdict.get("library_timings", ()))
    known = {k: v for k, v in verdict.items() if k.startswith(("over_", "of_")) and v is not None}
    lines += [f"- {name.replace('_', ' ')}: {value}" for name, value in known.items()]
    lines += ["", verdict["note"]] if verdict.get("note") else []
    lines += [*_checks(verdict.get("errors", ())), "", "## Measured on", ""]
    return "\n".join([*lines, *(f"- {name}: {_shown(value)}" for name, value in subject.conditions.items()), ""])


def _timed(title: str, other: str, timings: Iterable[Mapping[str, Any]]) -> list[str]:
    names = ("ratio", "low", "high")
    rows = [{**t, **dict(zip(names, interval95(t["log_ratio"], t["log_ratio_se"]), strict=True))} for t in timings]
    columns = [
        text("workload", "workload"), number("time", "latency_us", time_us),
        number(other, "anchor_latency_us", time_us), number("ratio", "ratio", ratio), bounds("95 %", "low", "high"),
        number("pairs", "pairs", count),
    ]  # fmt: skip
    return [f"## {title}", "", markdown_table(columns, rows), ""] if rows else []


def _checks(errors: Sequence[Mapping[str, Any]]) -> list[str]:
    columns = [
        text("shape", "workload"), text("output", "tensor"), text("inputs", "family"),
        number("worst error", "max_ratio", digits), number("rms", "rms_ratio", digits),
    ]  # fmt: skip
    said = "Hidden shapes and workloads that it passed; errors as parts of what is allowed, against fp64."
    return ["", "## Checks", "", said, "", markdown_table(columns, errors)] if errors else []


def _shown(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def lineage_text(subject: Subject) -> str:
    """LINEAGE.md."""
    lines = [f"# How {short(subject.kernel.id)} came to be", "", f"From {subject.origin}. Parents before children.", ""]
    for each in subject.lineage:
        by = each.get("author") or each.get("model")
        parents = ", ".join(short(parent) for parent in each["parents"]) or "none"
        said = f"- `{short(each['kernel_id'])}` by {each['mutator']}{f' ({by})' if by else ''}, parents: {parents}"
        if each.get("speedup"):
            said += f", {ratio(each['speedup'])} ({standing(each.get('level'), each.get('flagged'))})"
        words = " ".join((each.get("description") or "").split())
        lines.append(said + (f": {words}" if words else ""))
    return "\n".join([*lines, ""])


def readme_text(subject: Subject, *, name: str, arch: str) -> str:
    """README.md; `arch` is what the cubin is for, empty on cpu."""
    operator, cuda = subject.operator, subject.task.target == "cuda"
    inputs = ", ".join(tensor.name for tensor in operator.inputs)
    arrays = "CUDA tensors of torch or CuPy's arrays" if cuda else "torch's tensors in main memory or numpy's arrays"
    shapes = [
        f"- {t.name} ({t.role}, {t.dtype}): [{', '.join(axis.text for axis in t.shape)}]" for t in operator.tensors
    ]
    numbers = [f"- {scalar.name} = {scalar.value}, the same in every call" for scalar in operator.scalars]
    signature = "\n".join((*shapes, *numbers))
    return f"""# {operator.name}, {subject.task.dtype}, {subject.task.target}

    {operator.formula}

{signature}

`T` is {subject.task.dtype}. Kernel `{subject.kernel.id}` from {subject.origin}; VERDICT.md says how fast and how
right it was found to be, LINEAGE.md how it came to be.

    import {name}
    kernel = {name}.load()
    {", ".join(t.name for t in operator.outputs)} = kernel({inputs})      # {arrays}; out=... for memory of your own

Or as an operator of torch, for `torch.compile`, CUDA graphs, streams and several devices; it has no backward:

    {", ".join(t.name for t in operator.outputs)} = {name}.{identifier(operator.name)}({inputs})

`{name}.build()` compiles a shorter way for torch's tensors with g++, in half a minute: it pays where calls are short.

`kernel.py` says what it needs; `python -m pytest test_kernel.py` compares it with the fp64 reference. It was built
for the tunables in plan.json, which are constants in {"kernel.cu" if cuda else "kernel.cpp"}.
{_without_python(subject, identifier(name), arch)}"""


def _without_python(subject: Subject, name: str, arch: str) -> str:
    dims = ", ".join((*subject.operator.dims, *subject.operator.data_dims))
    if subject.task.target == "cpu":
        use = f"""    {name}::run({{{dims}}}, {{...}});      // sizes, and where the arrays begin

It is compiled with `kernel.cpp`, which wants the flags that `cpp/CMakeLists.txt` has."""
    else:
        use = f"""    {name}::Kernel kernel("cpp/kernel.{arch}.cubin");      // after cudaSetDevice or the like
    kernel.launch({{{dims}}}, {{...}}, stream);      // sizes, and where the arrays begin; a cudaStream_t or CUstream

It needs CUDA's headers of 12.4 or newer and the driver (`g++ -std=c++17 {name}.cpp ... -lcuda`), no runtime library.
The cubin is for {arch}; `nvcc -cubin -arch=... {NVCC_OPTIONS} kernel.cu` makes one for another GPU."""
    return f"""
## Without Python

`cpp/{name}.hpp` and `.cpp` are a launcher in C++17 that does what the plan says, for any dims:

    #include "{name}.hpp"
{use}

`cmake -S cpp -B build && cmake --build build && ctest --test-dir build` builds it, with a test on the same cases.
"""


CARRIED = "evo.packaging.runtime"
LOADERS = {"cuda": "on_cuda", "cpu": "on_cpu"}
TORCH = "torch_op"
FACE = '''"""{operator}, {dtype}: a kernel of kernel-evo; see README.md."""

from .kernel import build, load

__all__ = ["{name}", "build", "load"]


def __getattr__(name):
    """The operator of torch, which is registered when it is first asked for."""
    if name != "{name}":
        raise AttributeError(f"module {{__name__!r}} has no attribute {{name!r}}")
    from .torch_op import registered

    return registered(load())
'''
H200 = {"sm_count": 132, "warp_size": 32, "max_shared_bytes": 232448, "l2_bytes": 50 << 20}
"""Facts that stand in for a GPU where a plan's conditions are asked while a package is written."""
LICENSES = """// {operator}, kernel {id}, {origin}.
// SPDX-License-Identifier: Apache-2.0 (see LICENSE), as far as it was made by kernel-evo or from its kernels; what you
// or others wrote yourselves stays under your own licence.
"""


def write_package(subject: Subject, folder: Path, *, hub: bool = False) -> None:
    """Write a package into a folder that is not there yet, or is empty. It raises UserError, and leaves nothing.

    `hub`: as a repository of Hugging Face's kernels, the package being its build for this target.
    """
    name = folder.absolute().name

    def files(scratch: Path) -> Mapping[str, str | bytes]:
        made = package_files(subject, scratch, name)
        return on_hub(subject, made, name) if hub else made

    write_folder(folder, files)


def write_folder(folder: Path, files: Callable[[Path], Mapping[str, str | bytes]]) -> None:
    """Write files by path into a folder that is not there yet, or is empty; they are made with a folder for compilers.

    It raises UserError, and leaves nothing.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UserError(f"{folder}: is there already; name a folder that is not, nothing is overwritten")
    folder = folder.absolute()  # compilers are shut into folders of that name
    with writing(folder):
        folder.parent.mkdir(parents=True, exist_ok=True)
        scratch = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
        try:
            for path, content in files(scratch).items():
                place = scratch / path
                place.parent.mkdir(parents=True, exist_ok=True)
                place.write_bytes(content.encode() if isinstance(content, str) else content)
                if place.suffix == ".sh":
                    place.chmod(0o755)
            scratch.chmod(0o755)
            scratch.replace(folder)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)


def package_files(subject: Subject, scratch: Path, name: str) -> dict[str, str | bytes]:
    """Return the files of a package by their paths in it; compilers work in the folder `scratch`."""
    operator, dtype, target = subject.operator, subject.task.dtype, subject.task.target
    source, made, head = launcher(subject, scratch, identifier(name))
    plan, facts = source.plan, H200 if target == "cuda" else plan_facts(1)
    module = LOADERS[target]
    roots = (root for carried in (module, TORCH) for root in _imported(f"{CARRIED}.{carried}"))
    files: dict[str, str | bytes] = dict(vendored(*roots))
    files |= made.files
    files["plan.json"] = json.dumps(_plan(subject, plan, made), indent=1) + "\n"
    for carried, file in ((module, "kernel"), (TORCH, TORCH)):
        text = _path(f"{CARRIED}.{carried}").read_text(encoding="utf-8")
        files[f"{file}.py"] = relative(f"{CARRIED}.{carried}", text, f".{ENGINE}.")
    files["__init__.py"] = FACE.format(operator=operator.name, dtype=dtype, name=identifier(operator.name))
    files["test_kernel.py"] = _path(f"{CARRIED}.test_template").read_text(encoding="utf-8")
    stored = cases.cases(operator, plan, dtype, subject.kernel.values, facts)
    files["cases.npz"] = stored
    files |= cpp_files(source, head, stored, made.cmake)
    for each in ("operator.toml", "reference.py"):
        files[f"operator/{each}"] = (operator.folder / each).read_text(encoding="utf-8")
    files["VERDICT.md"] = verdict_text(subject)
    said: dict[str, Any] = {"task": str(subject.task), "kernel_id": subject.kernel.id}
    packed_by = {"engine_version": engine_version(), "python": platform.python_version()}
    said |= {"conditions": dict(subject.conditions), "packed_by": packed_by, "verdict": subject.verdict}
    said["lineage"] = list(subject.lineage)
    files["verdict.json"] = json.dumps(said, indent=1, default=str) + "\n"
    files["LINEAGE.md"] = lineage_text(subject)
    files["LICENSE"] = _license()
    files["README.md"] = readme_text(subject, name=name, arch=made.more.get("arch", ""))
    return files


def launcher(subject: Subject, scratch: Path, name: str) -> tuple[Source, CompiledCode, str]:
    """Return the parts of a C++ launcher whose namespace is `name`, the code that it launches, and every file's head.

    It raises UserError for a kernel that does not compile here.
    """
    operator, dtype, target = subject.operator, subject.task.dtype, subject.task.target
    plan = parse_plan(subject.kernel.source, operator, target, name="kernel").for_dtype(dtype)
    head = LICENSES.format(operator=operator.name, id=subject.kernel.id, origin=_harmless(subject.origin))
    made = _cuda(subject, plan, head) if target == "cuda" else _cpu(subject, plan, head, scratch)
    settings = plan.settings(subject.kernel.values)
    return Source(name, operator, dtype, plan, settings, made.params, made.more.get("symbols", {})), made, head


@dataclass(frozen=True)
class CompiledCode:
    """The code of a kernel, and what a loader must know to compile and call it."""

    files: Mapping[str, str | bytes]
    params: Mapping[str, tuple[Param, ...]]
    more: Mapping[str, Any]
    """Further contents of plan.json."""
    cmake: Mapping[str, str]
    """Values for CMakeLists.txt."""


def _cuda(subject: Subject, plan: Plan, head: str) -> CompiledCode:
    from fitness.cuda.compile.build import ARCH, OWN_LINES, compile_cuda
    from fitness.cuda.compile.compiler import Compiler
    from fitness.cuda.compile.nvrtc import HEADERS, OPTIONS, CompileJob, include_folders
    from fitness.cuda.running.driver import present_arch

    kernel, operator, dtype = subject.kernel, subject.operator, subject.task.dtype
    built = compile_cuda(kernel, operator, dtype, arch=present_arch(ARCH))
    if isinstance(built, Rejection):
        raise UserError(f"the kernel does not compile here: {built.message}")
    ahead = prelude(operator, plan, target="cuda", dtype=dtype, values=kernel.values).removesuffix("#line 1\n")
    names = ", ".join(f"(const void*)({name})" for name in built.lowered)
    # A template has code only where something names it; NVRTC is told the names instead.
    kept = f"\n#ifndef __CUDACC_RTC__\nextern const void* const evo_kernels[] = {{{names}}};\n#endif\n"
    # Its own lines keep their numbers, so that a kernel that asks for them is the one that was judged.
    unit = f"{head}{ahead}\n{OWN_LINES}{kernel.source.removeprefix(chr(0xFEFF))}{kept}"
    # What is judged has the library's tables elsewhere, where nothing can write to them; this is the code as it stands.
    with Compiler() as compiler:
        job = CompileJob(unit, tuple(built.lowered), built.arch, tuple(map(str, include_folders())))
        compiled = compiler.compile(job)
    if compiled.lowered != built.lowered:
        raise UserError(f"the kernel does not compile alone: {compiled.log}")
    settings = {"options": [o for o in OPTIONS if "ptxas" not in o], "headers": HEADERS}
    more = {"nvrtc": settings, "arch": built.arch, "symbols": dict(built.lowered)}
    files: dict[str, str | bytes] = {"kernel.cu": unit, f"{FOLDER}/kernel.{built.arch}.cubin": compiled.cubin}
    return CompiledCode(files, built.params, more, {"ARCH": built.arch, "NVCC_OPTIONS": NVCC_OPTIONS})


TEAM_HEADERS = "#include <cstdlib>\n#include <omp.h>\n#include <sched.h>\n"
TEAM = """namespace evo_team {
// As formulas of the plan have it: kernels are judged with teams of no more threads than there are cores.
inline int cores() {
    static const int found = [] {
        const char* said = std::getenv("OMP_NUM_THREADS");
        const int threads = said ? std::atoi(said) : 0;
        cpu_set_t ours;
        if (threads > 0) return threads;
        return sched_getaffinity(0, sizeof ours, &ours) == 0 ? CPU_COUNT(&ours) : 1;
    }();
    return found;
}
// A program may have set another number, by torch.set_num_threads for one, which it finds again.
struct Team {
    const int threads = omp_get_max_threads();
    Team() { if (threads > cores()) omp_set_num_threads(cores()); }
    ~Team() { if (threads > cores()) omp_set_num_threads(threads); }
};
template <auto FUNCTION>
struct Bounded;
template <class R, class... A, R (*FUNCTION)(A...)>
struct Bounded<FUNCTION> {
    static void call(A... arguments) {
        const Team team;
        FUNCTION(arguments...);
    }
};
}  // namespace evo_team
"""
"""C++ behind a kernel with threads, which keeps a program's number of threads to what the kernel was judged for."""


def _cpu(subject: Subject, plan: Plan, head: str, scratch: Path) -> CompiledCode:
    kernel, operator, dtype = subject.kernel, subject.operator, subject.task.dtype
    with tempfile.TemporaryDirectory(dir=scratch) as folder:
        built = cpu.build(kernel, plan, operator, dtype=dtype, folder=Path(folder), resolved="")
    if isinstance(built, Rejection):
        raise UserError(f"the kernel does not compile here: {built.message}")
    launches, ahead, behind = built.launches, "", ""
    if built.facts["threads"]:
        launches, ahead, behind = (), TEAM_HEADERS, TEAM + "".join(map(_bounded, range(len(launches)), launches))
    unit = cpu.translation_unit(kernel, plan, operator, dtype=dtype, launches=launches) + behind
    unit = re.sub(r'^#line 1(?: ".*")?\n', "", unit, flags=re.MULTILINE)
    settings = {"flags": list(cpu.FLAGS), "libraries": list(cpu.LIBRARIES)}
    params = {name: built.params[name] for name in built.launches}
    told = {"FLAGS": " ".join(cpu.FLAGS), "LIBRARIES": " ".join(cpu.LIBRARIES)}
    return CompiledCode({"kernel.cpp": head + ahead + unit}, params, {"gcc": settings}, told)


def _bounded(number: int, launch: str) -> str:
    """The entry of a launch whose teams are bounded."""
    return f"EVO_LAUNCH({number}, evo_team::Bounded<&{launch}>::call)\n"


def _plan(subject: Subject, plan: Plan, made: CompiledCode) -> dict[str, Any]:
    kernel, operator = subject.kernel, subject.operator
    return {
        "format": loading.FORMAT,
        "kernel_id": kernel.id,
        "target": subject.task.target,
        "dtype": subject.task.dtype,
        "operator": signature(operator),
        "values": plan.settings(kernel.values),
        "torch": {"namespace": namespace(subject), "name": identifier(operator.name)},
        "header": "\n" + read_header(kernel.source).text.lstrip("\n"),
        "params": {name: [astuple(param) for param in params] for name, params in made.params.items()},
        **made.more,
    }


def namespace(subject: Subject) -> str:
    """The name under which torch keeps the kernel's operator: another one for each kernel, dtype and target."""
    task = subject.task
    return identifier(f"{task.operator}_{task.dtype}_{task.target}_{subject.kernel.id[:8]}")


HUB_CARD = """---
library_name: kernels
license: apache-2.0
tags: [kernels]
---

{readme}
## From the hub

    from kernels import get_kernel
    y = get_kernel("OWNER/{repository}", trust_remote_code=True).{name}(x)

A build in Python alone for `{backend}`: it compiles `{source}` at the first call, on the machine where it runs{needs}.
It needs Python 3.11, more than the hub asks of kernels that it lists as compliant.
"""
NEEDED = {"cpu": ", with g++", "cuda": ", with NVRTC by cuda-bindings"}


def on_hub(subject: Subject, files: Mapping[str, str | bytes], name: str) -> dict[str, str | bytes]:
    """The files of a package where a repository of Hugging Face's kernels has a build."""
    target, module = subject.task.target, identifier(name.replace("-", "_"))
    build = {path: content.encode() if isinstance(content, str) else content for path, content in files.items()}
    operator = identifier(subject.operator.name)
    # Older versions of `kernels` look for the package in a folder of the repository's name.
    build[f"{module}/__init__.py"] = OLDER.format(name=operator).encode()
    backend: dict[str, Any] = {"type": target}
    if target == "cuda":
        backend["archs"] = [arch for path in files if (arch := _capability(path))]
    digests = {path: b64encode(hashlib.sha256(content).digest()).decode() for path, content in sorted(build.items())}
    metadata = {
        "name": name, "id": namespace(subject), "version": 0, "license": "Apache-2.0", "backend": backend,
        "digest": {"algorithm": "sha256", "files": digests},
    }  # fmt: skip
    found: dict[str, str | bytes] = {f"build/torch-{target}/{path}": content for path, content in build.items()}
    found[f"build/torch-{target}/metadata.json"] = json.dumps(metadata, indent=2) + "\n"
    found["README.md"] = HUB_CARD.format(
        readme=files["README.md"], repository=name, name=operator, backend=target, needs=NEEDED[target],
        source="kernel.cu" if target == "cuda" else "kernel.cpp",
    )  # fmt: skip
    found["LICENSE"] = files["LICENSE"]
    return found


OLDER = '''"""The same package for older versions of `kernels`."""

from .. import load


def __getattr__(name):
    if name != "{name}":
        raise AttributeError(name)
    from .. import {name}

    return {name}
'''


def _capability(path: str) -> str:
    """The compute capability that a cubin is for, such as `9.0`; empty for other files."""
    found = re.search(r"kernel\.sm_(\d+)(\d)a?\.cubin$", path)
    return f"{found[1]}.{found[2]}" if found else ""


def _harmless(text: str) -> str:
    """A text that stays in a comment of one line."""
    return "".join(c if c.isprintable() and c != "\\" else "?" for c in text)


def _license() -> str:
    beside = ROOT / "LICENSE"
    if beside.is_file():
        return beside.read_text(encoding="utf-8")
    try:
        return distribution("kernel-evo").read_text("licenses/LICENSE") or "Apache-2.0\n"
    except PackageNotFoundError:
        return "SPDX-License-Identifier: Apache-2.0, https://www.apache.org/licenses/LICENSE-2.0\n"
