"""Reads `operator.toml`: the models of its tables, whose docstrings are its reference, and every check of them."""

from __future__ import annotations

import itertools
import keyword
import math
import tomllib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from operators.definition.forms import Inherited, fill_in, with_form
from operators.definition.spec import (
    CPP_KEYWORDS,
    HIDDEN,
    IDENTIFIER,
    RESERVED,
    Bound,
    Distribution,
    Operator,
    Pattern,
    Role,
    Scalar,
    Special,
    Tensor,
    Tolerance,
    Workload,
)
from operators.dtypes import ACCUMULATOR, DTYPES, TARGETS
from operators.errors import OperatorError
from operators.expression import Expression, ExpressionError, parse
from operators.files import read_text

REFERENCE_ARGUMENTS = frozenset({"outputs", "prepared", "dtype", "rng", "family"})
"""Arguments that functions of reference.py may have besides the dims, tensors and scalars."""
MADE = "hidden shapes are made from dims where a file has none: write [[hidden]] of your own"
MAX_SHAPES = 1000
"""From one table: lists of dims multiply."""


def _formula(value: object) -> object:
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise ValueError('write an integer or a formula such as "ceil_div(n, 4)"')
    return value


def _sizes(value: object) -> object:
    """A formula or a list of integers; said in one sentence, which a union of types would not do."""
    if isinstance(value, list):
        if not value or any(type(size) is not int for size in value):
            raise ValueError("a list of sizes holds one integer or more, and nothing else")
        return value
    return _formula(value)


Formula = Annotated[str | int, BeforeValidator(_formula)]
Sizes = Annotated[str | int | list[int], BeforeValidator(_sizes)]


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, use_attribute_docstrings=True)


class _Tensor(_Table):
    """One tensor that kernels are given; dense, row-major."""

    name: str
    """Name in kernels and in reference.py."""
    role: Role
    """`in`: only read. `out`: only written. `inout`: changed in place."""
    dtype: str = "T"
    """`T`, the task's element type; `ACC`, its accumulator; or a type of its own, such as int32."""
    shape: list[Formula]
    """A formula over dims for every axis, the last one contiguous; empty for a single number."""
    distribution: str | None = None
    """Distribution of nominal values: `uniform(low, high)`, `normal(mean, sd)` or `integers(low, high)`, both ends
    included. One of the first two may be divided by the root of a formula over dims, as a layer's weights are:
    `uniform(-1, 1) / sqrt(k)`. Other input families start from them and depart: rows scaled by up to 4,096, one row or
    element 8 times larger, ties, order, zeros. Left out where `inputs(...)` of reference.py makes the tensor."""
    specials: list[Special] | None = None
    """Values that the operator's definition handles, which the input family `specials` strews in; `structured` and
    `mixture` inputs hold zeros where `zero` is among them. `[]`: none. Left out: zero, unless `bounded`. An output's
    may be `inf`: results of any family are infinite, as those of a mask."""
    bounded: bool | None = None
    """Whether all input families keep to the range of the distribution, because the operator means nothing outside of
    it, or amplifies errors (divisors, diagonals, probabilities). Left out: where that range leaves out zero."""
    pattern: Pattern | None = None
    """Pattern of matrices over the last two axes, which are of one size then, in every input family: `symmetric` ones
    mirror what stands above the diagonal, `upper` and `lower` triangular ones hold zeros on its other side."""
    exponentiated: bool = False
    """Whether an exponential is taken of what its products come to, so that no row may be larger by more than 4,096
    times: the last bit of a score must not overflow the exponential, as right kernels round scores before they subtract
    the largest one."""


class _Scalar(_Table):
    """A number that every call passes by value."""

    name: str
    """Name in kernels and in reference.py."""
    dtype: str
    """The element type, written like a tensor's."""
    value: float | int
    """Always the same."""


class _Shapes(_Table):
    """Settings of the dims."""

    dims: dict[str, Sizes]
    """For every dim an integer, a list of them (lists multiply), or a formula over the dims before it."""
    source: str = ""
    """Where the sizes come from, for people."""


class _Hidden(_Shapes):
    """Shapes that only verification uses: odd ones, small ones, multiples of 8 and of 32, at least one of each kind."""


class _Workload(_Shapes):
    """Shapes that are timed; a kernel is as fast as their geometric mean says."""

    set: str
    """The set it belongs to, one of which a run is told to use: `cpu` is the default on the cpu target, `realistic` on
    cuda, `published` what others have published."""
    weight: Formula = 1
    """Weight in a benchmark's own score; fitness knows no weights."""


class _Cost(_Table):
    """Amount of work: formulas over dims, `sizeof_T` and `sizeof_ACC`."""

    flops: Formula
    """Operations of a plain algorithm; what is reported."""
    min_flops: Formula
    """Operations that no algorithm can go below; a faster kernel than these allow is quarantined. Left out: 0."""
    min_bytes: Formula
    """Bytes that must come from or go to memory; likewise. Left out: every tensor once, `inout` ones twice; to be
    written where not all of an input is needed, and with `data_dims`."""
    bytes: Formula | None = None
    """Bytes that a plain algorithm moves; what is reported. Left out: `min_bytes`; to be written where these leave out
    what only the data tells to be needed."""


class _Tolerance(_Table):
    """Allowed distance of a result from the fp64 reference."""

    bound: Bound
    """`bits`: for what only moves values, every bit of them; inputs hold -0, infinities and NaN with payloads, and
    `reference(...)` is called with integers, the bits of the inputs. `exact`: equal values. `rounding`:
    |y - y64| <= a u |y64| + b g u_acc S + eta, S from `magnitude(...)` of reference.py (|y| without it), g the root of
    `terms` (`terms` itself for inputs whose errors line up). `measured`: for what is no plain sum of products; 4 times
    the largest error of trusted implementations in place of b g u_acc."""
    terms: Formula = 1
    """Terms that a result sums, a formula over dims."""
    exact_integers: bool = False
    """Whether sums of small integers must be bit-equal, whatever their order: for operators that are linear in each of
    their inputs. Needs `magnitude(...)`."""


class _File(_Table):
    """An operator's file; the tables of the pages below belong to it."""

    name: str
    """The operator's name: letters, digits and `_`."""
    like: str | None = None
    """A form of operators/shared, an unfinished operator.toml: what this file says takes its place, tables key by key,
    workloads set by set. Workloads, hidden shapes and costs of a form with other dims are left out."""
    family: str
    """Family of the operator, for `evo run --family`. Comparisons take operators of one family as related, but for
    those of the family `own`, which belong to none."""
    formula: str
    """Formula that it computes, for people and language models."""
    dims: Annotated[list[str], Field(min_length=1)]
    """Names of the sizes that a workload sets."""
    derived: dict[str, Formula] = {}
    """Sizes that follow from dims: name and formula, each over the dims and the derived ones before it."""
    data_dims: dict[str, str] = {}
    """Sizes that only the data tells (the longest row of a sparse matrix): name and meaning. `data_dims(...)` of
    reference.py computes them."""
    dtypes: dict[str, list[str]]
    """By target (`cpu`, `cuda`) the element types that `T` may be; the first is the default."""
    tensor: Annotated[list[_Tensor], Field(min_length=1)]
    """[[tensor]] for every tensor, in any order."""
    scalar: list[_Scalar] = []
    """[[scalar]] for every number passed by value."""
    workload: Annotated[list[_Workload], Field(min_length=1)]
    """[[workload]] for every setting, or list of settings, that is timed."""
    hidden: Annotated[list[_Hidden], Field(min_length=1)]
    """[[hidden]] for shapes that only verification uses. Left out: some of every kind, made from up to four dims; to be
    written where not every size goes with every other."""
    cost: _Cost
    """[cost]: what the work amounts to."""
    tolerance: _Tolerance
    """[tolerance]: how far from the reference a result may be."""
    partial: bool = False
    """Whether some inputs have no finite result, and it is not known which: where a verdict draws such, it draws
    others, from the distributions alone."""


TABLES: Mapping[str, type[BaseModel]] = {
    "": _File,
    "[[tensor]]": _Tensor,
    "[[scalar]]": _Scalar,
    "[[workload]]": _Workload,
    "[[hidden]]": _Hidden,
    "[cost]": _Cost,
    "[tolerance]": _Tolerance,
}
"""The models of operator.toml, by how their tables are written."""


def first_problem(error: ValidationError, keys: Collection[str] = ()) -> str:
    """One complaint of pydantic as one phrase: where, what is wrong; a misspelt key before what it left missing.

    Of a key at the top that is none of `keys`, the nearest is named, or all are.
    """
    problem = min(error.errors(), key=lambda e: e["type"] != "extra_forbidden")
    where = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in problem["loc"]).lstrip(".")
    if problem["type"] == "extra_forbidden":
        known = keys if len(problem["loc"]) == 1 else ()
        near = get_close_matches(where, known, n=1)
        hint = f"; did you mean `{near[0]}`?" if near else f"; keys are {', '.join(known)}" if known else ""
        return f"`{where}` is not a key that exists here{hint}"
    if problem["type"] == "missing":
        return f"`{where}` is missing"
    message = problem["msg"].removeprefix("Value error, ")
    said = f"{message[0].lower()}{message[1:]}"
    # A complaint about the whole says by itself what it is about.
    return f"`{where}`: {said}, not {problem['input']!r:.60}" if where else said


Made = TypeVar("Made")


def read_operator(folder: Path) -> Operator:
    """Read and check `folder/operator.toml`. Raises OperatorError: one line, file first."""
    return _read(folder, lambda raw: _build(raw, folder))


def declared(folder: Path) -> dict[str, Any]:
    """The keys of `folder/operator.toml` with the form that it is like, key by key. Raises OperatorError."""
    return _read(folder, lambda raw: dict.fromkeys(_File.model_fields) | raw.model_dump(exclude_defaults=True))


def _read(folder: Path, made: Callable[[_File], Made]) -> Made:
    path = folder / "operator.toml"
    inherited, ours = Inherited(), False
    try:
        merged, inherited = with_form(tomllib.loads(read_text(path)))
        filled, ours = fill_in(merged)
        return made(_File.model_validate(filled))
    except (FileNotFoundError, NotADirectoryError):
        file = folder if folder.is_file() else path
        problem = "it is a file" if folder.is_file() else "no such file"
        raise OperatorError(f"{file}: {problem}; an operator is a folder with operator.toml and reference.py") from None
    except (OSError, UnicodeDecodeError) as error:
        raise OperatorError(f"{path}: cannot be read: {error}") from None
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise OperatorError(f"{path}: not valid TOML: {error}") from None
    except ValidationError as error:
        problem = first_problem(error, [field.alias or name for name, field in _File.model_fields.items()])
        raise OperatorError(f"{path}: {problem}{inherited.named_in(problem)}") from None
    except ValueError as error:
        shape = f"; {MADE}" if ours and str(error).startswith(f"{HIDDEN} ") else ""
        raise OperatorError(f"{path}: {error}{shape}{inherited.named_in(str(error))}") from None


def _build(raw: _File, folder: Path) -> Operator:
    _check_names(raw)
    _check_dtypes(raw)
    derived: dict[str, Expression] = {}
    for name, text in raw.derived.items():
        derived[name] = _expression(text, (*raw.dims, *derived), f"derived.{name}")
    static_names = (*raw.dims, *derived)
    shape_names = (*static_names, *raw.data_dims)
    cost_names = (*static_names, "sizeof_T", "sizeof_ACC")
    operator = Operator(
        name=raw.name,
        family=raw.family,
        like=raw.like or "",
        formula=raw.formula,
        dims=tuple(raw.dims),
        derived=MappingProxyType(derived),
        data_dims=MappingProxyType(raw.data_dims),
        tensors=tuple(_tensor(t, shape_names, index) for index, t in enumerate(raw.tensor)),
        scalars=tuple(_scalar(s, index) for index, s in enumerate(raw.scalar)),
        dtypes=MappingProxyType({target: tuple(names) for target, names in raw.dtypes.items()}),
        workloads=tuple(_workloads(raw, derived)),
        hidden=tuple(_hidden(raw)),
        flops=_expression(raw.cost.flops, cost_names, "cost.flops"),
        min_flops=_expression(raw.cost.min_flops, cost_names, "cost.min_flops"),
        min_bytes=_expression(raw.cost.min_bytes, cost_names, "cost.min_bytes"),
        bytes=_expression(raw.cost.min_bytes if raw.cost.bytes is None else raw.cost.bytes, cost_names, "cost.bytes"),
        tolerance=Tolerance(
            raw.tolerance.bound,
            _expression(raw.tolerance.terms, shape_names, "tolerance.terms"),
            raw.tolerance.exact_integers,
        ),
        folder=folder,
        partial=raw.partial,
    )
    if not operator.outputs:
        raise ValueError("no tensor has the role out or inout")
    _check_shapes(operator)
    return operator


def _check_names(raw: _File) -> None:
    if not IDENTIFIER.fullmatch(raw.name):
        raise ValueError(f"name: {raw.name!r} is not an identifier; use letters, digits and _, a letter first")
    seen: dict[str, str] = {}
    tensors = ((t.name, "a tensor") for t in raw.tensor)
    scalars = ((s.name, "a scalar") for s in raw.scalar)
    dims = ((name, "a dim") for name in (*raw.dims, *raw.derived, *raw.data_dims))
    for name, what in itertools.chain(dims, tensors, scalars):
        if not IDENTIFIER.fullmatch(name):
            raise ValueError(f"{what} is called {name!r}; names are letters, digits and _, a letter first")
        if name in RESERVED | CPP_KEYWORDS | REFERENCE_ARGUMENTS or keyword.iskeyword(name):
            raise ValueError(f"{what} is called `{name}`, which is reserved; choose another name")
        if seen.get(name) == what:
            raise ValueError(f"{what} called `{name}` is declared twice; names must differ")
        if name in seen:
            raise ValueError(f"`{name}` is both {seen[name]} and {what}; names must differ")
        seen[name] = what


def _check_dtypes(raw: _File) -> None:
    if not any(raw.dtypes.values()):
        raise ValueError('dtypes: name at least one, such as cpu = ["fp32"]')
    for target, names in raw.dtypes.items():
        if target not in TARGETS:
            raise ValueError(f"dtypes.{target}: no such target; there are {', '.join(TARGETS)}")
        for name in names:
            if name not in ACCUMULATOR:
                raise ValueError(f"dtypes.{target}: {name!r} cannot be T; allowed are {', '.join(ACCUMULATOR)}")
            if names.count(name) > 1:
                raise ValueError(f"dtypes.{target}: {name} stands twice")
    elements: list[_Tensor | _Scalar] = [*raw.tensor, *raw.scalar]
    for entry in elements:
        if entry.dtype not in DTYPES and entry.dtype not in ("T", "ACC"):
            raise ValueError(f"`{entry.name}` has dtype {entry.dtype!r}; allowed are T, ACC, {', '.join(DTYPES)}")
    if raw.dtypes.get("cpu"):
        for name in (*raw.dtypes["cpu"], *(entry.dtype for entry in elements)):
            if name in DTYPES and not DTYPES[name].cpp:
                raise ValueError(f"dtypes.cpu: the cpu target has no {name}")


def _expression(text: Formula, names: Iterable[str], where: str) -> Expression:
    try:
        return parse(text, tuple(names))
    except ExpressionError as error:
        raise ValueError(f"{where}: {error}") from None


def _evaluate(expression: Expression, env: Mapping[str, int], where: str) -> int:
    """A value that cannot be negative."""
    try:
        value = expression.evaluate(env)
    except ExpressionError as error:
        raise ValueError(f"{where}: {error}") from None
    if value < 0:
        raise ValueError(f"{where}: `{expression.text}` = {value} is negative")
    return value


def _tensor(raw: _Tensor, names: Iterable[str], index: int) -> Tensor:
    where = f"tensor[{index}] `{raw.name}`"
    shape = tuple(_expression(axis, names, f"{where}: shape") for axis in raw.shape)
    if raw.distribution is None:
        if raw.bounded is not None:
            raise ValueError(f"{where}: bounded needs a distribution uniform(low, high) or integers(low, high)")
        if raw.exponentiated:
            raise ValueError(f"{where}: exponentiated needs a distribution; what inputs() makes has sizes of its own")
        if raw.pattern is not None:
            raise ValueError(f"{where}: pattern needs a distribution; what inputs() makes has its own")
        return Tensor(raw.name, raw.role, raw.dtype, shape, None, _specials(raw, where, bounded=False))
    if raw.role == "out":
        raise ValueError(f"{where}: an output has no distribution")
    try:
        distribution = Distribution.parse(raw.distribution, tuple(names))
    except ValueError as error:
        raise ValueError(f"{where}: distribution {error}") from None
    if raw.dtype in DTYPES and not DTYPES[raw.dtype].is_float:
        if distribution.kind != "integers":
            raise ValueError(f"{where}: {raw.dtype} needs a distribution integers(low, high)")
        if distribution.a < _smallest(raw.dtype) or distribution.b > DTYPES[raw.dtype].exact_integer_limit:
            raise ValueError(f"{where}: distribution {raw.distribution!r} exceeds what {raw.dtype} holds")
    if raw.bounded and distribution.kind == "normal":
        raise ValueError(f"{where}: a normal distribution has no bounds; write uniform(low, high)")
    bounded = distribution.leaves_out_zero if raw.bounded is None else raw.bounded
    specials = _specials(raw, where, bounded=bounded)
    _check_pattern(raw, where)
    return Tensor(raw.name, raw.role, raw.dtype, shape, distribution, specials, bounded, raw.pattern, raw.exponentiated)


def _check_pattern(raw: _Tensor, where: str) -> None:
    if raw.pattern and (len(raw.shape) < 2 or raw.shape[-2] != raw.shape[-1]):
        raise ValueError(f"{where}: {raw.pattern} matrices need two last axes of one size, not {raw.shape}")
    if raw.pattern in ("upper", "lower") and raw.bounded:
        raise ValueError(f"{where}: {raw.pattern} triangular matrices hold zeros, so that they cannot be bounded")


def _specials(raw: _Tensor, where: str, *, bounded: bool) -> tuple[Special, ...]:
    floating = raw.dtype not in DTYPES or DTYPES[raw.dtype].is_float
    if raw.specials is None:
        return ("zero",) if raw.role != "out" and floating and not bounded else ()
    if raw.role == "out" and set(raw.specials) <= {"inf"}:
        return tuple(raw.specials)
    if raw.role == "out":
        raise ValueError(f"{where}: an output has no specials but inf")
    if not floating:
        raise ValueError(f"{where}: {raw.dtype} has no specials; only floating tensors do")
    return tuple(raw.specials)


def _smallest(integer_dtype: str) -> int:
    return 0 if integer_dtype.startswith("u") else -DTYPES[integer_dtype].exact_integer_limit - 1


def _scalar(raw: _Scalar, index: int) -> Scalar:
    where = f"scalar[{index}] `{raw.name}`"
    if raw.dtype in DTYPES and not DTYPES[raw.dtype].is_float:
        if not isinstance(raw.value, int):
            raise ValueError(f"{where}: {raw.dtype} needs an integer, not {raw.value}")
        if not _smallest(raw.dtype) <= raw.value <= DTYPES[raw.dtype].exact_integer_limit:
            raise ValueError(f"{where}: {raw.value} exceeds what {raw.dtype} holds")
    return Scalar(raw.name, raw.dtype, raw.value)


def _settings(raw: _Shapes, declared: list[str], where: str) -> Iterator[dict[str, int]]:
    """Every combination of the listed values; a string is a formula over the dims before it."""
    if set(raw.dims) != set(declared):
        raise ValueError(f"{where}: dims must be exactly {', '.join(declared)}, not {', '.join(raw.dims) or 'none'}")
    lists = [value if isinstance(value, list) else [value] for value in (raw.dims[name] for name in declared)]
    if math.prod(map(len, lists)) > MAX_SHAPES:
        raise ValueError(
            f"{where}: its lists make {math.prod(map(len, lists))} shapes; at most {MAX_SHAPES} are allowed"
        )
    for combination in itertools.product(*lists):
        dims: dict[str, int] = {}
        for name, value in zip(declared, combination, strict=True):
            dims[name] = _evaluate(_expression(value, dims, f"{where}: {name}"), dims, f"{where}: {name}")
        yield dims


def _workloads(raw: _File, derived: Mapping[str, Expression]) -> Iterator[Workload]:
    for index, entry in enumerate(raw.workload):
        where = f"workload[{index}]"
        if entry.set == HIDDEN or not IDENTIFIER.fullmatch(entry.set):
            raise ValueError(f"{where}: a set cannot be called {entry.set!r}; use a word such as cpu or realistic")
        weight = _expression(entry.weight, (*raw.dims, *derived), f"{where}: weight")
        for dims in _settings(entry, raw.dims, where):
            env = dict(dims)
            for name, expression in derived.items():
                env[name] = _evaluate(expression, env, f"{where}: {name}")
            yield Workload(
                entry.set, MappingProxyType(dims), float(_evaluate(weight, env, f"{where}: weight")), entry.source
            )


def _hidden(raw: _File) -> Iterator[Workload]:
    for index, entry in enumerate(raw.hidden):
        for dims in _settings(entry, raw.dims, f"hidden[{index}]"):
            yield Workload(HIDDEN, MappingProxyType(dims), source=entry.source)


def _check_shapes(operator: Operator) -> None:
    """Everything has a value on every workload and hidden shape, and none stands twice in a set."""
    seen: set[tuple[str, str]] = set()
    data_dims = dict.fromkeys(operator.data_dims, 1)
    for workload in (*operator.workloads, *operator.hidden):
        where = f"{workload.set} {workload.name}"
        if (workload.set, workload.name) in seen:
            raise ValueError(f"workload {workload.name} stands twice in set `{workload.set}`")
        seen.add((workload.set, workload.name))
        env: dict[str, int] = dict(workload.dims)
        for name, expression in operator.derived.items():
            env[name] = _evaluate(expression, env, f"{where}: {name}")
        for tensor in operator.tensors:
            for axis in tensor.shape:
                _evaluate(axis, env | data_dims, f"{where}: shape of tensor `{tensor.name}`")
        _evaluate(operator.tolerance.terms, env | data_dims, f"{where}: tolerance.terms")
        cost = operator.cost_environment(workload.dims, "fp32")
        flops = _evaluate(operator.flops, cost, f"{where}: cost.flops")
        min_flops = _evaluate(operator.min_flops, cost, f"{where}: cost.min_flops")
        min_bytes = _evaluate(operator.min_bytes, cost, f"{where}: cost.min_bytes")
        plain_bytes = _evaluate(operator.bytes, cost, f"{where}: cost.bytes")
        for name, least, plain in (("flops", min_flops, flops), ("bytes", min_bytes, plain_bytes)):
            if least > plain:
                raise ValueError(f"{where}: cost.min_{name} = {least} exceeds cost.{name} = {plain}")
