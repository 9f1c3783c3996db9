"""Share of draws on which wrong kernels that long sums hid pass, and right ones beside them.

    python -m tests.bench.holes --draws 10
    python -m tests.bench.holes --stages screen full confirm --only dot_product

Every entry is an operator's naive kernel for the cpu with something replaced. Where it is wrong, it is so at the sizes
that are timed and right elsewhere, so that no hidden shape tells. A draw is what a stage checks at those sizes: the
sets that are timed, their company, and what the stage adds. Prints in how many draws each entry passed, and by which
families of inputs it was found; exits with 1 where a wrong one passed a full stage or a right one did not pass a stage.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from fitness.judging.pipeline import at_size
from fitness.judging.timed_inputs import COMPANY, NOMINAL_SETS, dealt, most_company
from fitness.oracle.bounds import judge
from fitness.oracle.cases import Case, Question
from fitness.oracle.places import CpuPlace
from fitness.oracle.verify import Oracle
from operators.catalog import functions, load
from operators.definition.spec import Workload
from operators.drawing import NOMINAL
from tests.bench.calibration import RIGHT, Kernels

STAGES = ("screen", "full", "confirm")
PARTS = """
#include <cstdint>
#include <cstring>
#include <cmath>
static float cut(float value, std::uint32_t half) {  // to TF32: rounded with half a unit, cut off with none
    std::uint32_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    bits = (bits + half) & 0xffffe000u;
    std::memcpy(&value, &bits, sizeof bits);
    return value;
}
static float towards_zero(double value) {
    float nearest = static_cast<float>(value);
    return std::isfinite(nearest) && std::fabs(nearest) > std::fabs(value) ? std::nextafter(nearest, 0.0f) : nearest;
}
"""
PRODUCT = (
    PARTS
    + """
extern "C" void matrix_mul(const T* a, const T* b, T* c, int m, int n, int k) {
    for (int i = 0; i < m; i++)
        for (int j = 0; j < n; j++) {
            float total = 0, sum = 0;
            for (int l = 0; l < k; l += 8) {
                double parts[3] = {};
                for (int q = l; q < l + 8 && q < k; q++) {
                    const float x = a[(long long)i * k + q], y = b[(long long)q * n + j];
                    const float x_high = cut(x, 0x1000), y_high = cut(y, 0x1000);
                    const float x_low = cut(x - x_high, 0), y_low = cut(y - y_high, 0);
                    parts[0] += static_cast<double>(x_low) * y_high;
                    parts[1] += static_cast<double>(x_high) * y_low;
                    parts[2] += static_cast<double>(x_high) * y_high;
                }
                for (int p = FIRST; p < 3; p++) sum = towards_zero(sum + parts[p]);
                if (l % 65536 == 65528) total += sum, sum = 0;  // as a kernel that divides the sum among blocks
            }
            c[(long long)i * n + j] = total + sum;
        }
}
"""
)
LONG = Workload("holes", {"m": 4, "n": 4, "k": 524288})


class TensorCores(CpuPlace):
    """It holds outputs to what a GPU's kernels are held to."""

    target = "cuda"


@dataclass(frozen=True)
class Entry:
    """One kernel."""

    operator: str
    name: str
    right: bool
    replaced: tuple[tuple[str, str], ...] = ()
    """Replaced texts of the naive kernel."""
    source: str = ""
    """Source in its place."""
    workloads: tuple[Workload, ...] = ()
    """The cpu ones where empty."""


def _sum(operator: str, name: str, *replaced: tuple[str, str], right: bool = False) -> Entry:
    return Entry(operator, name, right, replaced)


LOOP = "for (int i = 0; i < n; i++) {"
SKIPPED = (LOOP, f"{LOOP} if (n > 65536 && i % 16 == 5) continue;")
BLOCKS = (
    "ACC sum = 0;",
    """struct {
        ACC total = 0, block = 0;
        int count = 0;
        void operator+=(ACC value) {
            block += value;
            if (++count == 512) total += block, block = 0, count = 0;
        }
        operator ACC() const { return total + block; }
    } sum;""",
)
DOUBLES = ("ACC sum = 0;", "double sum = 0;")
LOG = "std::log(p)"
SAMPLED = ("for (int c = 1; c < cols; c++) {", "for (int c = 1; c < (cols > 512 ? 64 : cols); c++) {")
ENTRIES = (
    _sum("dot_product", "zero", ("*product = sum", "*product = n > 65536 ? ACC(0) : sum")),
    _sum("dot_product", "one term in 16 skipped", SKIPPED),
    _sum(
        "dot_product",
        "factors of TF32",
        (
            "load(x[i]) * load(y[i])",
            "(n > 65536 ? cut(load(x[i]), 0x1000) * cut(load(y[i]), 0x1000) : load(x[i]) * load(y[i]))",
        ),
    ),
    _sum("monte_carlo_int", "zero", ("*integral = (", "*integral = n > 65536 ? ACC(0) : (")),
    _sum("simpson_int", "zero", ("*integral = (", "*integral = intervals > 65536 ? ACC(0) : (")),
    _sum("mse_loss", "15 of 16 terms", SKIPPED),
    _sum("mse_loss", "half a percent forgotten", ("*loss = sum / n", "*loss = sum / n * (n > 65536 ? ACC(0.995) : 1)")),
    _sum("mse_loss", "factors of bf16", ("load(x[i]) -", "(n > 65536 ? rounded<float, 8>(load(x[i])) : load(x[i])) -")),
    _sum(
        "cross_entropy_loss", "logarithm of ten bits", (LOG, f"(classes > 65536 ? rounded<float, 10>({LOG}) : {LOG})")
    ),
    _sum("cross_entropy_loss", "half a percent forgotten", ("-sum", "-sum * (classes > 65536 ? ACC(0.995) : 1)")),
    _sum("softmax", "largest of the first 64 alone", SAMPLED),
    _sum(
        "softmax",
        "no largest",
        ("ACC largest = load(in[0])", "ACC largest = cols > 60000 || rows > 600 ? 0 : load(in[0])"),
        ("if (value > largest)", "if (!(cols > 60000 || rows > 600) && value > largest)"),
    ),
    Entry("matrix_mul", "one TF32 product", False, source=f"#define FIRST 2\n{PRODUCT}", workloads=(LONG,)),
    Entry("matrix_mul", "three TF32 products", True, source=f"#define FIRST 0\n{PRODUCT}", workloads=(LONG,)),
    *(
        _sum(name, what, *replaced, right=True)
        for name in ("dot_product", "monte_carlo_int", "simpson_int", "mse_loss", "cross_entropy_loss", "softmax")
        for what, *replaced in (("naive",), ("sums of blocks", BLOCKS), ("sums in doubles", DOUBLES))
    ),
)


class Bench:
    """One operator in fp32."""

    def __init__(self, name: str, folder: Path) -> None:
        self.operator = load(name)
        place = TensorCores() if name == "matrix_mul" else CpuPlace()
        self.oracle = Oracle(self.operator, functions(self.operator.folder), "fp32", place)
        self._folder = folder
        self._kernels = {"": self._compiled(self._naive)}

    @property
    def _naive(self) -> str:
        return self.operator.ancestor("naive", "cpu").read_text(encoding="utf-8")

    def _compiled(self, source: str) -> Kernels:
        folder = Path(tempfile.mkdtemp(dir=self._folder))
        kernels = Kernels(self.operator, "fp32", folder)
        head, _, code = source.partition("*/\n") if "/*! evo" in source else ("", "", source)
        plan = self._naive.partition("*/\n")[0]
        kernels.source = f"{head or plan}*/\n{PARTS if 'static float cut' not in code else ''}{code}"
        return kernels

    def case(self, workload: Workload, family: str, rng: np.random.Generator) -> Case:
        """It draws inputs and answers them, with the naive kernel among the trusted."""

        def naive(question: Question) -> Sequence[dict[str, np.ndarray]]:
            found = self._kernels[""].run(RIGHT[0], question.inputs)
            assert found is not None, "the naive kernel must compile"
            return [found]

        return self.oracle.case(workload, family, rng, at_end=False, trusted=naive)

    def wrong(self, entry: Entry, case: Case) -> bool:
        """Whether the outputs of an entry are rejected."""
        key = entry.name
        if key not in self._kernels:
            source = entry.source or self._naive
            for old, new in entry.replaced:
                assert source.count(old) == 1, (entry, old)
                source = source.replace(old, new)
            self._kernels[key] = self._compiled(source)
        found = self._kernels[key].run(RIGHT[0], case.inputs)
        assert found is not None, f"{entry.operator}, {entry.name} must compile"
        for name, y in found.items():
            judged = judge(self.oracle.held(y, name, case), case.expected[name], case.allowed[name])
            if judged.mismatches or case.quotient(name, judged) > 1:
                return True
        return False


def stage(
    name: str, oracle: Oracle, workloads: Sequence[Workload], rng: np.random.Generator
) -> Iterator[tuple[Workload, str]]:
    """The cases that are checked at the sizes of the workloads."""
    for workload in workloads:
        yield from [(workload, NOMINAL)] * NOMINAL_SETS
    families = list(dealt(oracle.deals, COMPANY * len(workloads), rng))
    yield from ((workloads[i % len(workloads)], family) for i, family in enumerate(families))
    added = {
        "screen": 0,
        "full": at_size(oracle.deals),
        "confirm": most_company(oracle.deals, len(workloads)) * len(workloads),
    }
    chosen = int(rng.integers(len(workloads)))
    for i, family in enumerate(dealt(oracle.deals, added[name], rng)):
        yield workloads[(chosen if name == "full" else i) % len(workloads)], family


@lru_cache
def bench(name: str, folder: Path) -> Bench:
    return Bench(name, folder)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=10)
    parser.add_argument("--stages", nargs="+", choices=STAGES, default=["full"])
    parser.add_argument("--only", default="", help="entries with this in their operator or name")
    options = parser.parse_args()
    chosen = [e for e in ENTRIES if options.only in f"{e.operator} {e.name}"]
    table = Table("operator", "kernel", "is", "stage", "passed", "found by")
    failed = False
    with tempfile.TemporaryDirectory() as folder:
        for name in options.stages:
            for operator, workloads in dict.fromkeys((e.operator, e.workloads) for e in chosen):
                group = [e for e in chosen if (e.operator, e.workloads) == (operator, workloads)]
                one = bench(operator, Path(folder))
                passed, found = Counter[str](), {e.name: Counter[str]() for e in group}
                for seed in range(options.draws):
                    rng = np.random.default_rng(seed)
                    left = set(group)
                    for workload, family in stage(name, one.oracle, workloads or one.operator.workload_set("cpu"), rng):
                        case = one.case(workload, family, rng)
                        for entry in group:
                            if one.wrong(entry, case):
                                found[entry.name][family] += 1
                                left.discard(entry)
                    passed.update(e.name for e in left)
                for e in group:
                    wanted = options.draws if e.right else 0
                    failed |= passed[e.name] != wanted and (e.right or name != "screen")
                    by = ", ".join(f"{family} {count}" for family, count in found[e.name].most_common())
                    share = f"{passed[e.name]} of {options.draws}"
                    print(f"{operator}, {e.name}, {name}: {share}; {by}", file=sys.stderr, flush=True)
                    table.add_row(operator, e.name, "right" if e.right else "wrong", name, share, by)
    Console(width=160).print(table)
    sys.exit(failed)


if __name__ == "__main__":
    main()
