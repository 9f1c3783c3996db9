"""The specification of an operator: what `operators.definition.reading` makes of its `operator.toml`."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from operators.dtypes import ACCUMULATOR, DTYPES
from operators.errors import OperatorError
from operators.expression import Expression
from operators.expression import parse as parse_expression
from operators.files import read_text

RESERVED = frozenset({"T", "ACC", "i", "load", "store", "sm_count", "warp_size", "max_shared_bytes", "l2_bytes"}) | {
    "sizeof_T", "sizeof_ACC", "blocks_per_sm", "cpu_count", "min", "max", "ceil_div", "ceil_log2", "next_pow2",
}  # fmt: skip
"""Names of the prelude and of the facts; no dim, tensor, scalar, buffer or tunable may take one."""

HIDDEN = "hidden"
"""The set that hidden shapes belong to."""
HIDDEN_NEEDED = 6
"""A kernel must support so many of them, or all where there are fewer."""
LONGEST_CHAIN = 2**16
"""Additions in a row whose roundings lean to one side, or that tensor cores cut off, count up to so many in bounds: a
longer sum is to be added in blocks, unless the naive kernel does worse on the same inputs."""
CHAMPIONS = "champions"
"""The folder beside an operator's first kernels that holds the best ones known, and the first part of their names."""

IDENTIFIER = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
CPP_KEYWORDS = frozenset(
    [
        "alignas",
        "alignof",
        "and",
        "asm",
        "auto",
        "bool",
        "break",
        "case",
        "catch",
        "char",
        "class",
        "const",
        "constexpr",
        "continue",
        "default",
        "delete",
        "do",
        "double",
        "else",
        "enum",
        "explicit",
        "export",
        "extern",
        "false",
        "float",
        "for",
        "friend",
        "goto",
        "if",
        "inline",
        "int",
        "long",
        "mutable",
        "namespace",
        "new",
        "not",
        "operator",
        "or",
        "private",
        "protected",
        "public",
        "register",
        "return",
        "short",
        "signed",
        "sizeof",
        "static",
        "struct",
        "switch",
        "template",
        "this",
        "throw",
        "true",
        "try",
        "typedef",
        "typename",
        "union",
        "unsigned",
        "using",
        "virtual",
        "void",
        "volatile",
        "while",
        "xor",
    ]
)

Role = Literal["in", "out", "inout"]
Bound = Literal["bits", "exact", "rounding", "measured"]
Special = Literal["zero", "subnormal", "huge", "inf", "nan"]
Pattern = Literal["symmetric", "upper", "lower"]


@dataclass(frozen=True)
class Distribution:
    """Distribution of nominal input values: `uniform(low, high)`, `normal(mean, sd)` or `integers(low, high)`.

    `integers` includes both ends. The first two may be divided by the root of a formula over dims, as the weights of a
    layer are: `uniform(-1, 1) / sqrt(k)`.
    """

    kind: Literal["uniform", "normal", "integers"]
    a: float
    b: float
    fan: Expression | None = None
    """The values are divided by the root of this."""

    @classmethod
    def parse(cls, text: str, names: Collection[str] = ()) -> Distribution:
        """Read the notation above, with a formula over these names. Raises ValueError with the reason."""
        text, divided, rest = text.partition("/")
        fan = None
        if divided:
            found = re.fullmatch(r"\s*sqrt\((.*)\)\s*", rest)
            if not found or text.strip().startswith("integers"):
                raise ValueError(f"{f'{text}/{rest}'!r}: write uniform(low, high) / sqrt(formula over dims)")
            fan = parse_expression(found[1], names)
        number = r"\s*([-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?)\s*"
        match = re.fullmatch(rf"(uniform|normal|integers)\({number},{number}\)", text.strip())
        if not match:
            raise ValueError(f"{text!r}: write uniform(low, high), normal(mean, sd) or integers(low, high)")
        kind, a, b = match[1], float(match[2]), float(match[3])
        if not (math.isfinite(a) and math.isfinite(b)):
            raise ValueError(f"{text!r}: both numbers must be finite")
        if kind == "integers" and not (a.is_integer() and b.is_integer()):
            raise ValueError(f"{text!r}: both bounds must be integers")
        if kind == "normal" and b < 0:
            raise ValueError(f"{text!r}: the standard deviation is negative")
        if kind != "normal" and a > b:
            raise ValueError(f"{text!r}: the bounds are the wrong way round")
        return cls(kind, a, b, fan)  # type: ignore[arg-type]

    def at(self, env: Mapping[str, int]) -> Distribution:
        """Return the distribution where dims have these sizes."""
        if self.fan is None:
            return self
        root = math.sqrt(max(self.fan.evaluate(env), 1))
        return Distribution(self.kind, self.a / root, self.b / root)

    def __str__(self) -> str:
        return f"{self.kind}({self.a:g}, {self.b:g}){f' / sqrt({self.fan.text})' if self.fan else ''}"

    @property
    def leaves_out_zero(self) -> bool:
        """Whether all values are on one side of zero, as only an operator that needs it asks for."""
        return self.kind != "normal" and (self.a > 0 or self.b < 0)


@dataclass(frozen=True)
class Tensor:
    """One tensor of the operator's signature; dense, row-major."""

    name: str
    role: Role
    dtype: str
    """T, ACC or a name of `DTYPES`."""
    shape: tuple[Expression, ...]
    """Over dims, derived dims and data-dependent dims; empty for a scalar result."""
    distribution: Distribution | None
    """None for outputs and for inputs that `inputs()` of reference.py makes."""
    specials: tuple[Special, ...] = ("zero",)
    """Values that the operator's definition handles and the input family `specials` strews in; floating inputs only."""
    bounded: bool = False
    """Whether all input families keep to the distribution's range, but for `specials`."""
    pattern: Pattern | None = None
    """Pattern that all input families are made to keep over the last two axes; None: none."""
    exponentiated: bool = False
    """Whether its products are scores of which an exponential is taken; no input family makes them huge then."""

    def sizes(self, env: Mapping[str, int]) -> tuple[int, ...]:
        """The concrete shape."""
        return tuple(axis.evaluate(env) for axis in self.shape)


@dataclass(frozen=True)
class Scalar:
    """A number that every call passes by value."""

    name: str
    dtype: str
    value: float | int


@dataclass(frozen=True)
class Workload:
    """One concrete setting of an operator's dims."""

    set: str
    dims: Mapping[str, int]
    weight: float = 1.0
    """Used by a benchmark's own score only, never by fitness."""
    source: str = ""

    def __hash__(self) -> int:
        return hash((self.set, self.name))

    @property
    def name(self) -> str:
        """`rows=16,cols=256`: unique within its set."""
        return ",".join(f"{name}={value}" for name, value in self.dims.items())


def sets_of(name: str) -> list[str]:
    """Return the workload sets that a name joins with `+`."""
    return name.split("+")


@dataclass(frozen=True)
class Tolerance:
    """The class of error bound an output is held to.

    `bits`: every bit is one of the input's, those of -0 and of a NaN's payload too, as only what moves values can say;
    its reference is called with integers in place of numbers. `exact`: equal values. `rounding`:
    |y - y64| <= a u |y64| + b sqrt(K) u_acc S + eta, where K is `terms` and S is what reference.py's `magnitude()`
    returns, |y64| without one (standard rounding-error analysis, Higham, "Accuracy and Stability of Numerical
    Algorithms", chapters 3 and 4). `measured`: for what is no plain contraction; in place of b sqrt(K) u_acc stands
    4 times the largest error of trusted implementations relative to S.
    """

    bound: Bound
    terms: Expression
    """Over dims, derived dims and data-dependent dims."""
    exact_integers: bool = False
    """Linear in each of its inputs, so that sums of small integers are bit-equal whatever their order."""


@dataclass(frozen=True)
class Operator:
    """A computation to optimise. `operators.catalog.load` makes it from a folder."""

    name: str
    family: str
    formula: str
    dims: tuple[str, ...]
    derived: Mapping[str, Expression]
    """In order; each may use the dims and the derived dims before it."""
    data_dims: Mapping[str, str]
    """Name and meaning of dims that only the data tells (the longest row of a sparse matrix)."""
    tensors: tuple[Tensor, ...]
    scalars: tuple[Scalar, ...]
    dtypes: Mapping[str, tuple[str, ...]]
    """By target."""
    workloads: tuple[Workload, ...]
    hidden: tuple[Workload, ...]
    """Shapes that only verification uses, odd and small ones."""
    flops: Expression
    """Operations of a plain algorithm; for reporting."""
    min_flops: Expression
    """Operations that no algorithm can go below; for floors."""
    min_bytes: Expression
    """Bytes that must come from or go to memory whatever the data are; for floors."""
    bytes: Expression
    """Bytes that a plain algorithm moves; for reporting."""
    tolerance: Tolerance
    folder: Path = field(compare=False)
    partial: bool = False
    """Whether some inputs have no finite result: a draw of such is replaced by one from the tensors' distributions."""
    like: str = ""
    """The form of operators/shared that it is like; empty: none."""
    _naive: dict[Path, str] = field(default_factory=dict, compare=False, repr=False)
    """Sources of naive kernels, by file: what a process has read once it need not open again."""

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        """Tensors that a kernel reads, `inout` ones among them, in the order of operator.toml."""
        return tuple(t for t in self.tensors if t.role != "out")

    @property
    def outputs(self) -> tuple[Tensor, ...]:
        """Tensors that a kernel writes, `inout` ones among them, in the order of operator.toml."""
        return tuple(t for t in self.tensors if t.role != "in")

    @property
    def shape_names(self) -> frozenset[str]:
        """Every dim a plan may use: declared, derived and data-dependent."""
        return frozenset((*self.dims, *self.derived, *self.data_dims))

    @property
    def names(self) -> frozenset[str]:
        """Everything of this operator that a kernel may name."""
        return self.shape_names | {t.name for t in self.tensors} | {s.name for s in self.scalars}

    def environment(self, dims: Mapping[str, int]) -> dict[str, int]:
        """`dims` with the derived dims added. Raises ExpressionError where one has no value."""
        env = dict(dims)
        for name, expression in self.derived.items():
            env[name] = expression.evaluate(env)
        return env

    def cost_environment(self, dims: Mapping[str, int], dtype: str) -> dict[str, int]:
        """The values that the `[cost]` expressions are evaluated over."""
        sizes = {"sizeof_T": DTYPES[dtype].size, "sizeof_ACC": DTYPES[ACCUMULATOR[dtype]].size}
        return self.environment(dims) | sizes

    def workload_set(self, name: str) -> tuple[Workload, ...]:
        """The workloads of one set, or of several, as `published+realistic`; each once, the sets in this order.

        Raises OperatorError with the sets there are.
        """
        chosen: dict[str, Workload] = {}
        for part in sets_of(name):
            own = [w for w in self.workloads if w.set == part]
            if not own:
                sets = ", ".join(sorted({w.set for w in self.workloads}))
                raise OperatorError(f"operator {self.name}: no workload set `{part}`; there are {sets}")
            for workload in own:
                chosen.setdefault(workload.name, workload)
        return tuple(chosen.values())

    def ancestor(self, name: str, target: str) -> Path:
        """The file of a first kernel, such as `naive` or `champions/h200`."""
        return self.folder / f"{name}{'.cpp' if target == 'cpu' else '.cu'}"

    def naive(self, target: str) -> str:
        """The source of the naive kernel. Raises OperatorError."""
        path = self.ancestor("naive", target)
        try:
            return self._naive.get(path) or self._naive.setdefault(path, read_text(path))
        except FileNotFoundError:
            raise OperatorError(f"{self.folder}: {path.name} is missing") from None
        except (OSError, UnicodeDecodeError) as error:
            raise OperatorError(f"{path}: cannot be read: {error}") from None

    def ancestors(self, target: str) -> tuple[str, ...]:
        """The names of all first kernels that the folder itself holds, `naive` before the others."""
        naive = self.ancestor("naive", target)
        others = sorted(path.stem for path in self.folder.glob(f"*{naive.suffix}") if path != naive)
        return ("naive", *others)

    def champions(self, target: str, dtype: str) -> tuple[str, ...]:
        """The names of the best kernels known for one dtype, such as `champions/h200-fp32`: `ancestor` finds them.

        A file without a dtype in its name serves those dtypes that have no file of their own on its device.
        """
        suffix = self.ancestor("naive", target).suffix
        stems = {path.stem for path in (self.folder / CHAMPIONS).glob(f"*{suffix}")}
        own = {stem for stem in stems if stem.endswith(f"-{dtype}")}
        shared = {s for s in stems if s.rpartition("-")[2] not in ACCUMULATOR and f"{s}-{dtype}" not in own}
        return tuple(f"{CHAMPIONS}/{stem}" for stem in sorted(own | shared))


@dataclass(frozen=True, order=True)
class Task:
    """Operator x dtype x target: what a population, an archive and a budget share belong to."""

    operator: str
    dtype: str
    target: str

    def __str__(self) -> str:
        return f"{self.operator}/{self.dtype}/{self.target}"

    @classmethod
    def parse(cls, text: str) -> Task:
        """The inverse of `str`. Raises OperatorError."""
        parts = text.split("/")
        if len(parts) != 3 or not all(parts):
            raise OperatorError(f"{text!r} is not a task; write operator/dtype/target, such as softmax/fp32/cpu")
        return cls(*parts)


def alike(one: Operator, other: Operator) -> bool:
    """Return whether a kernel of one operator may show how to write one of the other.

    It goes by what the operators declare. Both sum along some dim or neither does; and both are like the same form, or,
    where one is like none, they are of one family with inputs and outputs of the same ranks.
    """
    if one.name == other.name:
        return True
    if _reduces(one) is not _reduces(other):
        return False
    if one.like and other.like:
        return one.like == other.like
    return one.family == other.family and _ranks(one) == _ranks(other)


def _reduces(operator: Operator) -> bool:
    return bool(operator.tolerance.terms.names)


def _ranks(operator: Operator) -> tuple[list[int], list[int]]:
    """The ranks of the floating tensors; index arrays tell how data are stored, not what is computed."""
    sides = operator.inputs, operator.outputs
    ranked = [sorted(len(t.shape) for t in side if t.dtype in ("T", "ACC")) for side in sides]
    return ranked[0], ranked[1]
