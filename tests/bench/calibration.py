"""Margins of the oracle's gates between kernels that are right and kernels that are not.

    python -m tests.bench.calibration --operators softmax matrix_mul --seeds 2

Every operator's naive.cpp is compiled many times, with its accumulator, its loads or its results replaced: right ones
add in another order or more precisely, wrong ones round products, sums or results to fewer bits. All of them are judged
on every hidden shape, in every family and dtype. The first table shows how near to a rejection right
kernels come (above 1 is a false verdict), the second how many of the cases catch a wrong one and by what factor: a case
with sums of one term, or of integers, cannot tell.
"""

from __future__ import annotations

import argparse
import ctypes
import math
import re
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from fitness.cpu.build import FLAGS, LIBRARIES, LINK_FLAGS
from fitness.oracle.bounds import judge
from fitness.oracle.cases import Case, Question
from fitness.oracle.inputs import TORCH_DTYPES, Inputs
from fitness.oracle.verify import Oracle
from fitness.sandbox.native import CXX
from operators.catalog import folders, functions, load
from operators.definition.spec import Operator, Workload
from operators.dtypes import resolve_dtype
from operators.plan.reading import parse_plan
from operators.prelude import prelude

TOO_MANY = 100_000
"""Outputs of a case that every family and dtype gets; larger workloads get nominal inputs only."""
LEAST_OUTPUTS, LEAST_TERMS = 64, 32
"""Fewest outputs and terms of a case that enters the factors of the second table, where an operator has such: few short
sums show little."""
FACTS = {"cpu_count": 1, "l2_bytes": 1 << 20}

SUMS = """
#include <cstring>
#include <cstdint>
template <class F, int BITS> static inline F rounded(F value) {
    using Word = std::conditional_t<sizeof(F) == 4, std::uint32_t, std::uint64_t>;
    constexpr int drop = (sizeof(F) == 4 ? 24 : 53) - BITS;
    if (drop <= 0 || !__builtin_isfinite(value)) return value;
    Word bits;
    std::memcpy(&bits, &value, sizeof bits);
    bits += (Word(1) << (drop - 1)) - 1 + ((bits >> drop) & 1);
    bits &= ~((Word(1) << drop) - 1);
    std::memcpy(&value, &bits, sizeof bits);
    return value;
}
template <class F, int BITS> struct Short {  // rounds whatever is kept in it
    F kept;
    Short(F value = 0) : kept(rounded<F, BITS>(value)) {}
    operator F() const { return kept; }
    Short& operator+=(F value) { return *this = Short(kept + value); }
};
template <class F> struct Kahan {
    F sum, low = 0;
    Kahan(F value = 0) : sum(value) {}
    operator F() const { return sum; }
    Kahan& operator+=(F value) {
        F y = value - low, t = sum + y;
        low = (t - sum) - y;
        sum = t;
        return *this;
    }
};
template <class F> struct Pairwise {  // a counter in binary whose digits are sums of 2^i terms
    F sums[40];
    std::uint64_t count = 1;
    Pairwise(F value = 0) : sums{value} {}
    operator F() const {
        F total = 0;
        for (int i = 0; count >> i; i++)
            if (count >> i & 1) total += sums[i];
        return total;
    }
    Pairwise& operator+=(F value) {
        int i = 0;
        for (; count >> i & 1; i++) value += sums[i];
        sums[i] = value;
        count++;
        return *this;
    }
};
template <class F> struct Blocks {  // of 64 terms
    F total = 0, block;
    int count = 1;
    Blocks(F value = 0) : block(value) {}
    operator F() const { return total + block; }
    Blocks& operator+=(F value) {
        block += value;
        if (++count == 64) { total += block; block = 0; count = 0; }
        return *this;
    }
};
"""


@dataclass(frozen=True)
class Variant:
    """A naive kernel with something replaced; `F` is the accumulator that the task really has."""

    name: str
    accumulator: str = "F"
    load_bits: int = 64
    result_bits: int = 64
    flags: tuple[str, ...] = ()
    finite: bool = False
    """Cannot handle infinities."""


RIGHT = (
    Variant("naive"),
    Variant("scalar", flags=("-O1", "-fno-tree-vectorize", "-ffp-contract=off")),
    Variant("reassociated", flags=("-fassociative-math", "-fno-signed-zeros", "-freciprocal-math")),
    Variant("wider sums", "std::conditional_t<sizeof(F) == 4, double, long double>"),
    Variant("Kahan's sums", "Kahan<F>", finite=True),  # its correction would be inf - inf
    Variant("pairwise sums", "Pairwise<F>"),
    Variant("sums of blocks", "Blocks<F>"),
)
LOWER_BITS: Mapping[str, Sequence[int]] = {"fp64": (32, 24), "fp32": (16, 11, 8), "fp16": (11, 8), "bf16": (11, 8)}
"""Significant bits of what products and accumulators may be kept in by mistake: single, bf16x2, TF32 or half, bf16."""
LOWER_RESULTS: Mapping[str, Sequence[int]] = {"fp64": (24,), "fp32": (11, 8), "fp16": (8,), "bf16": (4,)}
OWN_BITS = {"fp64": 53, "fp32": 24, "fp16": 11, "bf16": 8}


def wrong(dtype: str) -> Iterator[Variant]:
    """Variants that compute in fewer bits than the task's type has."""
    for bits in LOWER_BITS[dtype]:
        if bits < OWN_BITS[dtype]:
            yield Variant(f"products of {bits} bits", load_bits=bits)
        yield Variant(f"accumulator of {bits} bits", f"Short<F, {bits}>")
    for bits in LOWER_RESULTS[dtype]:
        yield Variant(f"results of {bits} bits", result_bits=bits)


class Kernels:
    """The variants of one operator's naive kernel for one dtype, compiled on first use.

    Types that C++ lacks are computed on as float, from inputs that are rounded already, with the result rounded.
    """

    def __init__(self, operator: Operator, dtype: str, folder: Path) -> None:
        self.operator = operator
        self.dtype = dtype
        self.native = "fp64" if dtype == "fp64" else "fp32"
        self.folder = folder
        self.source = operator.ancestor("naive", "cpu").read_text(encoding="utf-8")
        self._compiled: dict[Variant, ctypes.CDLL | None] = {}

    @cached_property
    def plan(self):  # type: ignore[no-untyped-def]
        return parse_plan(self.source, self.operator, "cpu")

    def run(self, variant: Variant, inputs: Inputs) -> dict[str, np.ndarray] | None:
        """Outputs by name, as rounded to the task's types; None where the variant cannot be compiled."""
        if variant not in self._compiled:
            self._compiled[variant] = self._compile(variant)
        library = self._compiled[variant]
        if library is None:
            return None
        wide = TORCH_DTYPES[self.native]
        tensors = {n: t.to(wide) if t.is_floating_point() else t for n, t in inputs.tensors.items()}
        for tensor in self.operator.outputs:
            start = tensors.get(tensor.name)
            shape = tensor.sizes(inputs.dims)
            tensors[tensor.name] = torch.full(shape, math.nan, dtype=wide) if start is None else start.clone()
        self._call(library, tensors, inputs.dims)
        return {t.name: self._result(variant, t.dtype, tensors[t.name]) for t in self.operator.outputs}

    def _result(self, variant: Variant, dtype: str, value: torch.Tensor) -> np.ndarray:
        element = resolve_dtype(dtype, self.dtype)
        value = value.to(TORCH_DTYPES[element.name])
        if variant.result_bits < OWN_BITS[element.name]:
            mantissa, exponent = torch.frexp(value.double())
            value = torch.ldexp((mantissa * 2.0**variant.result_bits).round() * 2.0**-variant.result_bits, exponent)
        return value.double().numpy().reshape(-1)

    def _call(self, library: ctypes.CDLL, tensors: Mapping[str, torch.Tensor], dims: Mapping[str, int]) -> None:
        number = ctypes.c_double if self.native == "fp64" else ctypes.c_float
        scalars = {s.name: s for s in self.operator.scalars}
        resolved = self.plan.resolve(self.operator, dtype=self.native, dims=dims, values={}, facts=FACTS)
        # A variant may keep wider numbers in its scratch than the plan knows of, 16 bytes at most in place of 2.
        scratch = {b.name: ctypes.create_string_buffer(8 * b.bytes) for b in resolved.buffers}
        for step in resolved.steps:
            values: list[Any] = []
            for a in step.args:
                if a.kind == "tensor":
                    values.append(ctypes.c_void_p(tensors[a.name].data_ptr()))
                elif a.kind == "buffer":
                    values.append(scratch[a.name])
                elif a.name in scalars and resolve_dtype(scalars[a.name].dtype, self.dtype).is_float:
                    values.append(number(scalars[a.name].value))
                else:
                    values.append(ctypes.c_int(a.value or 0))
            getattr(library, step.kernel)(*values)

    def _compile(self, variant: Variant) -> ctypes.CDLL | None:
        number = "double" if self.native == "fp64" else "float"
        head = prelude(self.operator, self.plan, target="cpu", dtype=self.native, values={})
        head = head.replace(f"using ACC = {number};", f"{SUMS}using F = {number};\nusing ACC = {variant.accumulator};")
        if variant.load_bits < 64:
            head = head.replace("return static_cast<ACC>(value);", f"return rounded<F, {variant.load_bits}>(value);")
        # Parameters keep their types: what is replaced is how the kernel computes.
        signature = re.compile(r'extern "C" void [^{]*')
        body = signature.sub(lambda found: re.sub(r"\bACC\b", "F", found[0]), self.source)
        name = f"{self.operator.name}-{self.dtype}-{len(self._compiled)}"
        source, compiled, library = (self.folder / f"{name}{end}" for end in (".cpp", ".o", ".so"))
        source.write_text("#include <type_traits>\n" + head + body, encoding="utf-8")
        flags = [flag for flag in FLAGS if flag not in ("-fvisibility=hidden", "-fno-trapping-math")]
        flags += ["-fno-trapping-math", *variant.flags]
        commands = (
            [CXX, *flags, "-c", str(source), "-o", str(compiled)],
            [CXX, *LINK_FLAGS, str(compiled), "-o", str(library), *LIBRARIES],
        )
        for command in commands:
            if subprocess.run(command, capture_output=True).returncode != 0:
                return None
        return ctypes.CDLL(str(library))


@dataclass(frozen=True)
class Finding:
    """One variant on one output of one case."""

    operator: str
    dtype: str
    variant: str
    right: bool
    family: str
    workload: str
    outputs: int
    terms: int
    max_ratio: float
    rms_ratio: float

    @property
    def ratio(self) -> float:
        return max(self.max_ratio, self.rms_ratio)


def cases(oracle: Oracle, kernels: Kernels, rng: np.random.Generator, *, large: bool) -> Iterator[Case]:
    """Every family on every shape, as far as sizes allow; with `large` also on the cpu workloads."""

    def naive(question: Question) -> list[dict[str, np.ndarray]]:
        found = kernels.run(RIGHT[0], question.inputs)
        assert found is not None, "the naive kernel must compile"
        return [found]

    operator = oracle.operator
    for workload in (*operator.hidden, *(operator.workload_set("cpu") if large else ())):
        for family in oracle.families if _size(operator, workload) <= TOO_MANY else ("nominal",):
            yield oracle.case(workload, family, rng, at_end=False, trusted=naive)


def _size(operator: Operator, workload: Workload) -> int:
    dims = operator.environment(workload.dims) | dict.fromkeys(operator.data_dims, 1)
    return max(math.prod(t.sizes(dims)) for t in operator.tensors)


def findings(operator: Operator, dtype: str, seed: int, folder: Path, *, large: bool) -> Iterator[Finding]:
    """All variants on all cases of one seed."""
    oracle = Oracle(operator, functions(operator.folder), dtype)
    kernels = Kernels(operator, dtype, folder)
    variants = [(v, True) for v in RIGHT] + [(v, False) for v in wrong(dtype)]
    for case in cases(oracle, kernels, np.random.default_rng(seed), large=large):
        terms = operator.tolerance.terms.evaluate(case.dims)
        for variant, right in variants:
            if variant.finite and case.family == "specials":
                continue
            for name, y in (kernels.run(variant, case.inputs) or {}).items():
                found = judge(y, case.expected[name], case.allowed[name])
                rms = case.quotient(name, found)
                yield Finding(
                    operator.name, dtype, variant.name, right, case.family, case.workload.name, y.size,
                    terms, found.max_ratio, rms,
                )  # fmt: skip


def show(all_findings: Sequence[Finding]) -> None:
    """The two tables."""
    console = Console(width=170)
    keys = sorted({(f.operator, f.dtype) for f in all_findings})
    table = Table("operator", "dtype", "checks", "largest error / bound", "where", "rms / limit", "where")
    for operator, dtype in keys:
        group = [f for f in all_findings if f.right and (f.operator, f.dtype) == (operator, dtype)]
        one, other = max(group, key=lambda f: f.max_ratio), max(group, key=lambda f: f.rms_ratio)
        table.add_row(
            operator,
            dtype,
            str(len(group)),
            f"{one.max_ratio:.3f}",
            _where(one),
            f"{other.rms_ratio:.3f}",
            _where(other),
        )
    console.print("Right kernels", table)
    table = Table(
        "operator", "dtype", "variant", "cases", "caught", "by rms alone", "long nominal sums: least", "median"
    )
    for operator, dtype in keys:
        group = [f for f in all_findings if not f.right and (f.operator, f.dtype) == (operator, dtype)]
        for variant in dict.fromkeys(f.variant for f in group):
            table.add_row(operator, dtype, variant, *_caught([f for f in group if f.variant == variant]))
    console.print("Wrong kernels", table)


def _where(finding: Finding) -> str:
    return f"{finding.variant}, {finding.family}, {finding.workload}"


def _caught(group: Sequence[Finding]) -> tuple[str, ...]:
    caught = sum(f.ratio > 1 for f in group)
    by_rms = sum(f.rms_ratio > 1 >= f.max_ratio for f in group)
    outputs = min(LEAST_OUTPUTS, max(f.outputs for f in group))
    terms = min(LEAST_TERMS, max(f.terms for f in group))
    telling = (f for f in group if f.outputs >= outputs and f.terms >= terms)
    nominal = [f.ratio for f in telling if f.family == "nominal"] or [math.nan]
    shares = (f"{count / len(group):.0%}" for count in (caught, by_rms))
    return str(len(group)), *shares, f"{min(nominal):.3g}", f"{np.median(nominal):.3g}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--operators", nargs="+", default=sorted(folders()))
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--dtypes", nargs="+", default=["fp64", "fp32", "bf16", "fp16"])
    parser.add_argument("--large", action="store_true", help="also the cpu workloads, which takes minutes")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    found: list[Finding] = []
    with tempfile.TemporaryDirectory() as folder:
        for operator in map(load, arguments.operators):
            for dtype in dict.fromkeys(d for names in operator.dtypes.values() for d in names):
                for seed in range(arguments.seeds if dtype in arguments.dtypes else 0):
                    scratch = Path(tempfile.mkdtemp(dir=folder))
                    found += findings(operator, dtype, seed, scratch, large=arguments.large)
    show(found)


if __name__ == "__main__":
    main()
