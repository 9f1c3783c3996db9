"""Operators' CUDA kernels that compile for an architecture, and what their machine code tells there.

    python -m tests.bench.architectures --arch sm_100a                       # needs no GPU
    python -m tests.bench.architectures --arch sm_100a --nvdisasm nvdisasm   # and NVIDIA's disassembler counts as well

Compiles every naive kernel, tunable one and champion in every dtype, and prints a table: how many there are of each
kind, how many compile, and why the others do not. With `--nvdisasm` (the package nvidia-cuda-nvdisasm) every count of
instructions that a build's facts hold is compared with what the disassembler shows. Exits with 1 where one differs,
or a kernel is refused for another reason than that the architecture lacks an instruction.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from fitness.cuda.compile.build import ARCH, CudaBuild, compile_cuda
from operators.catalog import folders, load
from operators.champions import offered
from operators.definition.spec import CHAMPIONS
from operators.kernel import Kernel

MNEMONICS = {
    "tensor": "IMMA HMMA DMMA HGMMA IGMMA QGMMA UTCHMMA UTCIMMA UTCQMMA",
    "fp16": "HADD2 HFMA2 HMUL2",
    "fp32": "FMUL FADD FFMA FMUL2 FADD2 FFMA2",
    "fp64": "DMUL DADD DFMA",
    "special": "MUFU",
    "global": "LDG STG",
    "generic": "LD ST",
    "shared": "LDS STS",
    "local": "LDL STL",
    "async": "LDGSTS UTMALDG UTMASTG UBLKCP UBLKRED",
    "atomic": "ATOM ATOMS REDG ATOMG",
    "shuffle": "SHFL",
    "barrier": "BAR SYNCS UCGABAR_ARV UCGABAR_WAIT",
}
"""Mnemonics of nvdisasm, by class of `fitness.cuda.compile.cubin`."""
INSTRUCTION = re.compile(r"^\s+/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?(?P<name>[A-Z]\w*)(?P<rest>[^;]*);", re.MULTILINE)
CONSTANT = re.compile(r"(?:\.MMA\b|^ R\d+, -RZ, RZ,)")
"""HFMA2 that sets a register to a constant."""
LACKS = re.compile(r"error: sm_\w+ has no (\S+?)(?:\.\w+)*[,:\s]")


@dataclass(frozen=True)
class Row:
    """Result of one kernel with one dtype."""

    operator: str
    dtype: str
    file: str
    lacks: str = ""
    """The instruction that the architecture does not have."""
    refused: str = ""
    """Any other reason."""
    differs: str = ""
    """Instructions that the disassembler counts otherwise."""
    instructions: int = 0

    @property
    def kind(self) -> str:
        """naive, champions, or what else the folder has."""
        return self.file.partition("/")[0]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--arch", default=ARCH)
    parser.add_argument("--operators", nargs="+", default=sorted(folders()))
    parser.add_argument("--nvdisasm", type=Path, help="NVIDIA's disassembler")
    options = parser.parse_args()
    rows = list(_rows(options.operators, options.arch, options.nvdisasm))
    print(table(rows, options.arch, checked=options.nvdisasm is not None))
    sys.exit(any(row.refused or row.differs for row in rows))


def _rows(names: list[str], arch: str, nvdisasm: Path | None) -> Iterator[Row]:
    for name in names:
        operator = load(name)
        for dtype in operator.dtypes.get("cuda", ()):
            for file in (*operator.ancestors("cuda"), *offered(operator, "cuda", dtype)):
                source = operator.ancestor(file, "cuda").read_text(encoding="utf-8")
                made = compile_cuda(Kernel(name, "cuda", source), operator, dtype, arch=arch)
                if not isinstance(made, CudaBuild):
                    lacks = LACKS.search(made.message)
                    reason = "" if lacks else made.message.splitlines()[0][:200]
                    yield Row(name, dtype, file, lacks=lacks[1] if lacks else "", refused=reason)
                    continue
                counts = {c: made.facts[f"{c}_instructions"] for c in MNEMONICS if f"{c}_instructions" in made.facts}
                theirs = counted(made.cubin, nvdisasm) if nvdisasm else counts
                differs = ", ".join(f"{c}: {n}, nvdisasm {theirs[c]}" for c, n in counts.items() if theirs[c] != n)
                if not counts:
                    differs = "no instruction is counted"
                yield Row(name, dtype, file, differs=differs, instructions=sum(counts.values()))


def counted(cubin: bytes, nvdisasm: Path) -> dict[str, int]:
    """The instructions of each class, as the disassembler shows them."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        shown = subprocess.run([nvdisasm, "-c", file.name], capture_output=True, text=True, check=True).stdout
    names = Counter(m["name"] for m in INSTRUCTION.finditer(shown) if not _sets_constant(m["name"], m["rest"]))
    return {each: sum(names[name] for name in listed.split()) for each, listed in MNEMONICS.items()}


def _sets_constant(name: str, rest: str) -> bool:
    return name == "HFMA2" and CONSTANT.search(rest) is not None


def table(rows: list[Row], arch: str, *, checked: bool) -> str:
    """Markdown: a line for each kind of kernel, then what was refused or differs, in its own words."""
    lines = [
        f"{arch}: {len(rows)} kernels and dtypes; `lacks`: they use an instruction that it does not have. "
        + ("nvdisasm counts the same instructions in all but those below." if checked else ""),
        "",
        "| kernels | compile | lacks | refused | instructions counted |",
        "|---|---|---|---|---|",
    ]
    for kind in sorted({row.kind for row in rows}, key=lambda kind: (kind != "naive", kind == CHAMPIONS, kind)):
        own = [row for row in rows if row.kind == kind]
        lacking = Counter(row.lacks for row in own if row.lacks)
        refused = sum(bool(row.refused) for row in own)
        cells = (
            kind, f"{len(own) - refused - lacking.total()} of {len(own)}",
            ", ".join(f"{n} {what}" for what, n in lacking.items()) or "-", refused or "-",
            f"{sum(row.instructions for row in own):,}",
        )  # fmt: skip
        lines.append(f"| {' | '.join(map(str, cells))} |")
    told = [f"- {r.operator} {r.dtype} {r.file}: {r.refused or r.differs}" for r in rows if r.refused or r.differs]
    lacking_rows = [f"- {r.operator} {r.dtype} {r.file}: lacks {r.lacks}" for r in rows if r.lacks]
    return "\n".join([*lines, "", *told, *lacking_rows])


if __name__ == "__main__":
    main()
