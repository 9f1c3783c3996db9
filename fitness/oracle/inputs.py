"""Inputs of checks are drawn here: several families, each from a generator whose seed the candidate never sees."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch

from operators import drawing
from operators.catalog import Functions
from operators.definition.spec import Distribution, Operator, Pattern, Tensor
from operators.drawing import NOMINAL
from operators.dtypes import DType, least_deviation, resolve_dtype
from operators.errors import OperatorError

FEW = "few"
SPECIALS = "specials"
UNNOTICED = "unnoticed"
FAMILIES = (NOMINAL, "scaled", "integers", "structured", FEW, UNNOTICED, SPECIALS, "mixture")
"""Families of every operator.

`scaled`: rows of very different size, some of any that a product of two can have; `integers`: exact small integers;
`structured`: constant, one-hot, sorted, tied; `few`: a few large integers carry the result, all else is zero;
`unnoticed`: each number is as a nominal one, so that a kernel that samples them before it is sloppy sees nothing, while
their digits lean to one side and the largest lie together; `specials`: zeros, infinities and the like in a few places;
`mixture`: some of everything, in drawn proportions.
A tensor that is `bounded` stays within its distribution's range in all of them, but for specials that it declares.
"""
CPU = torch.device("cpu")
CANCELLATION = "cancellation"
"""The family of operators with sums, whose reference.py makes them cancel."""
FAINT = "faint"
"""The family of operators whose small constants, such as an epsilon, decide results of small inputs alone."""
CHANGED: Mapping[str, str] = {CANCELLATION: "cancel", FAINT: "faint"}
"""Families that a function of reference.py makes, by changing drawn inputs."""

TORCH_DTYPES = {
    "fp64": torch.float64, "fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16,
    "int64": torch.int64, "int32": torch.int32, "int8": torch.int8, "uint8": torch.uint8,
}  # fmt: skip
_FRACTION_BITS = {torch.float64: 52, torch.float32: 23, torch.float16: 10, torch.bfloat16: 7}
RARE_BITS = 15
"""Elements of the inputs of an operator that moves bits which hold patterns that are no usual numbers, in every
family."""
SCALE_EXPONENT, DEFAULT_EXPONENT = {"fp16": 3.0}, 12.0
"""Rows of the family `scaled` differ by up to 2^-e .. 2^e; the latter, where the type's range does not forbid it."""
MIXTURE_EXPONENT = 8.0
"""The same for the family `mixture`."""
DOMINANCE = 8
"""A row of the family `structured` may be larger than the others by this factor."""
WIDE_SHARE, WIDE_EXPONENT = 1 / 8, 45.0
"""Share of these rows that are smaller by this power of two, and all the others larger, where the type has room for it:
a range that other families leave out. The others are larger together: were each row's size its own, the largest
few would carry a long sum alone, and right kernels that cut it off at every step would be held against what few terms
lose.

Rows whose scores are exponentiated do so downwards alone: a kernel that computes exp2(fma(score, c, -largest * c)), as
right ones do, is off by the last bit of its largest score, and from 2^31 on that bit overflows the exponential."""
BESIDE = 64
"""Number of the largest elements that lie side by side in the family `unnoticed`, against kernels that go by blocks."""
LEANS: Mapping[str, tuple[int, int]] = {"fp32": (8, 11), "fp64": (11, 24)}
"""Significant bits of shorter types, to which its numbers are all rounded towards zero, half of them to either."""
POSITIVE_SHARE = 3 / 4
"""Share of its numbers that are positive, for errors that lean to show in sums of products too."""
FEW_MOST = 16
"""Most elements along the longest axis of a tensor that carry the result in the family `few`: their sums are exact."""
FEW_BITS = {"fp64": 12, "fp32": 12, "bf16": 8, "fp16": 3}
"""Significant bits of those: one more than TF32 has, or as many as the type has, or as its range allows."""
LONGEST_BITS = FEW_BITS | {"fp32": 20}
"""The same of one in every line: more than two parts of bf16 hold, which are 17, and fewer than two of TF32 do. Long
sums hide what products of the former lose."""
DEPARTING = ("scaled", "structured", "mixture")
"""Families in which one input of a partial operator may leave what its distribution has of signs and of places."""
LEAST_DEVIATION = 2.0**-10
"""Least deviations of numbers that lie far from zero, as a share of them."""
OVERWHELMING = ("huge", "inf", "nan")
"""Special values that hide each other, and all else, where they meet in one result: a draw holds one kind of them."""
HUGE = {"fp64": 2.0**500, "fp32": 2.0**126, "bf16": 2.0**126, "fp16": 2.0**14}
"""Large numbers, far enough below the largest finite number for a difference of two, and in fp64, whose reference has
no wider type, for a product. Where one is strewn in, so are some between it and what other families hold; and between
those and subnormal numbers."""


@dataclass(frozen=True)
class Inputs:
    """One drawn set: every in and inout tensor by name, and the dims with what only the data tells."""

    tensors: Mapping[str, torch.Tensor]
    dims: Mapping[str, int]
    """Declared, derived and data-dependent."""


def families(functions: Functions) -> tuple[str, ...]:
    """Those that an operator has."""
    return (*FAMILIES, *(family for family, function in CHANGED.items() if functions.offers(function)))


def overwhelming(operator: Operator, dtype: str) -> tuple[str, ...]:
    """The kinds of special values, of those that hide each other, that some input of an operator may hold."""
    floating = [t for t in operator.inputs if resolve_dtype(t.dtype, dtype).is_float]
    return tuple(kind for kind in OVERWHELMING if any(kind in t.specials for t in floating))


def carriers(operator: Operator, dtype: str) -> tuple[str, ...]:
    """The inputs of which a few elements may carry the result: all others may be zero, and those are large."""
    return tuple(
        t.name
        for t in operator.inputs
        if t.distribution is not None
        and resolve_dtype(t.dtype, dtype).is_float
        and not t.bounded
        and "zero" in t.specials
    )


def draw(
    operator: Operator,
    functions: Functions,
    *,
    dims: Mapping[str, int],
    dtype: str,
    family: str,
    rng: np.random.Generator,
    device: torch.device = CPU,
    kind: str | None = None,
    carrier: str | None = None,
) -> Inputs:
    """Inputs for one setting of the dims, on `device`. Raises OperatorError when reference.py returns the unusable.

    `kind`: which of the overwhelming special values the family `specials` strews in. `carrier`: the tensor of which a
    few elements carry the result, in the family `few`. Both are left to chance where they are not given.
    """
    env = operator.environment(dims)
    extra: dict[str, Any] = {s.name: s.value for s in operator.scalars}
    extra |= {"dtype": resolve_dtype("T", dtype), "rng": rng, "family": family, "device": device}
    made: dict[str, torch.Tensor] = {}
    if functions.offers("inputs"):
        made = dict(functions.call("inputs", env | extra))
    if operator.data_dims:
        env |= data_dims(functions, env | made)
    may_carry = carriers(operator, dtype)
    if family == FEW and may_carry and carrier is None:
        carrier = str(rng.choice(may_carry))
    departing = _departing(operator, dtype, rng) if family in DEPARTING else None
    for tensor in operator.inputs:
        element = resolve_dtype(tensor.dtype, dtype)
        shape = tensor.sizes(env)
        own = "integers" if family == FEW and tensor.name != carrier else family
        if tensor.name not in made:
            if tensor.distribution is None:
                raise OperatorError(
                    f"{operator.folder}/operator.toml: tensor `{tensor.name}` has no distribution and inputs() of "
                    "reference.py does not make it"
                )
            drawn = sample(tensor, element, shape, own, rng, device=device, kind=kind, env=env)
            if tensor.name == departing:
                nominal = partial(sample, tensor, element, shape, NOMINAL, rng, device=device, env=env)
                drawn = _departed(drawn, nominal, tensor.distribution.at(env), element, family, rng)
            if own != family and tensor.name in may_carry and not operator.tolerance.exact_integers:
                drawn = (
                    drawn * 2.0 ** -FEW_BITS[element.name]
                )  # what carries is rounded to its last bit by all the rest
            made[tensor.name] = patterned(drawn, tensor.pattern)
        _check(operator, "inputs", tensor.name, made[tensor.name], element, shape)
    if function := CHANGED.get(family):
        for name, value in functions.changed(function, env | extra | made).items():
            tensor = next(t for t in operator.inputs if t.name == name)
            _check(operator, function, name, value, resolve_dtype(tensor.dtype, dtype), tensor.sizes(env))
            made[name] = value
    if operator.tolerance.bound == "bits":
        made |= {name: _with_rare_bits(drawn, rng) for name, drawn in made.items() if drawn.is_floating_point()}
    return Inputs({t.name: made[t.name].to(device).contiguous() for t in operator.inputs}, env)


def _departing(operator: Operator, dtype: str, rng: np.random.Generator) -> str | None:
    """The input of a partial operator that departs in one draw, if any.

    Its distributions are an example's and do not say where it is defined: a draw that has no result is drawn again.
    """
    floating = [t for t in operator.inputs if resolve_dtype(t.dtype, dtype).is_float]
    may = [t.name for t in floating if t.distribution is not None and not t.bounded]
    chosen = int(rng.integers(len(may) + 1)) if operator.partial else len(may)
    return may[chosen] if chosen < len(may) else None


def _departed(
    values: torch.Tensor,
    nominal: Callable[[], torch.Tensor],
    law: Distribution,
    element: DType,
    family: str,
    rng: np.random.Generator,
) -> torch.Tensor:
    """The values with either sign where the law has one, against kernels that leave out what negative numbers need; or
    nominal ones, moved away from zero until it varies little, against variances of squares less a squared mean."""
    signed = law.kind == "normal" or law.a < 0
    if family == "scaled" and (signed or rng.integers(2)) and values.numel():
        least = least_deviation(values.numel(), element, LEAST_DEVIATION)
        distance = rng.choice([-1.0, 1.0]) if signed else 1.0
        distance *= 2.0 ** rng.uniform(0, max(-math.log2(least), 0.0))
        near = nominal().double()
        moved: torch.Tensor = near + distance * near.std(correction=0)
        return moved.to(values.dtype)
    if signed:
        return values
    signs = drawing.integers(0, 1, tuple(values.shape), rng, values.device)
    return torch.where(signs == 0, values, -values)


def _with_rare_bits(values: torch.Tensor, rng: np.random.Generator) -> torch.Tensor:
    """Some places hold what arithmetic and conversions lose: -0, infinities, subnormals and NaN with drawn payloads."""
    size, fraction = values.element_size(), _FRACTION_BITS[values.dtype]
    places = np.unique(rng.integers(max(values.numel(), 1), size=min(RARE_BITS, values.numel())))
    places = rng.permutation(places)
    exponent = ((1 << (8 * size - 1 - fraction)) - 1) << fraction
    patterns = np.zeros(len(places), dtype=np.uint64)
    for number in range(len(places)):
        payload = int(rng.integers(1, 1 << fraction))
        low = (0, payload, exponent, exponent | payload, exponent | payload)[number % 5]
        patterns[number] = low | int(number == 0 or rng.integers(2)) << (8 * size - 1)
    bits = torch.from_numpy(patterns.astype(f"u{size}").view(f"i{size}"))
    result = values.clone().contiguous()
    result.view(-1).view(bits.dtype)[torch.as_tensor(places, device=values.device)] = bits.to(values.device)
    return result


def data_dims(functions: Functions, values: Mapping[str, Any]) -> dict[str, int]:
    """The dims that only these tensors tell."""
    return {name: int(value) for name, value in functions.call("data_dims", values).items()}


def sample(
    tensor: Tensor,
    element: DType,
    shape: tuple[int, ...],
    family: str,
    rng: np.random.Generator,
    *,
    device: torch.device = CPU,
    kind: str | None = None,
    env: Mapping[str, int],
) -> torch.Tensor:
    """Values of a tensor that has a distribution, rounded to its type, drawn where they are wanted; see `draw`."""
    assert tensor.distribution is not None
    make = _MAKERS[family] if element.is_float else _nominal
    specials = tensor.specials
    if family == SPECIALS:
        rivals = [special for special in specials if special in OVERWHELMING]
        chosen = kind or (str(rng.choice(rivals)) if rivals else None)
        specials = tuple(s for s in specials if s not in OVERWHELMING or s == chosen)
    recipe = _Recipe(
        tensor.distribution.at(env), shape, element, specials, tensor.bounded, tensor.exponentiated, rng, device
    )
    values = make(recipe)
    return values.to(TORCH_DTYPES[element.name])


def patterned(values: torch.Tensor, pattern: Pattern | None) -> torch.Tensor:
    """Whole drawn matrices, made to keep what their tensor declares of them."""
    match pattern:
        case "symmetric":
            return values.triu() + values.triu(1).mT
        case "upper":
            return values.triu()
        case "lower":
            return values.tril()
    return values


def _check(operator: Operator, function: str, name: str, value: Any, element: DType, shape: tuple[int, ...]) -> None:
    if not isinstance(value, torch.Tensor) or value.dtype != TORCH_DTYPES[element.name] or tuple(value.shape) != shape:
        found = f"{value.dtype} {list(value.shape)}" if isinstance(value, torch.Tensor) else type(value).__name__
        raise OperatorError(
            f"{operator.folder}/reference.py: {function}() made `{name}` as {found}, "
            f"it must be {element.name} {list(shape)}"
        )


# --- families --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Recipe:
    """The distribution of a tensor's values, and their place."""

    law: Distribution
    shape: tuple[int, ...]
    element: DType
    specials: tuple[str, ...]
    bounded: bool
    exponentiated: bool
    rng: np.random.Generator
    device: torch.device

    @property
    def signed(self) -> bool:
        return self.law.kind == "normal" or self.law.a < 0

    @property
    def precision(self) -> torch.dtype:
        """The type that values are drawn in: most types round every value anyway."""
        return torch.float64 if self.element.name == "fp64" else torch.float32

    @property
    def rows(self) -> tuple[int, ...]:
        """The shape of one number per row."""
        return (*self.shape[:1], *(1,) * (len(self.shape) - 1))

    def uniform(self, shape: tuple[int, ...], low: float = 0.0, high: float = 1.0) -> torch.Tensor:
        return drawing.uniform(shape, self.rng, self.device, dtype=self.precision).mul_(high - low).add_(low)

    def normal(self, shape: tuple[int, ...], mean: float, deviation: float) -> torch.Tensor:
        return drawing.normal(shape, self.rng, self.device, dtype=self.precision).mul_(deviation).add_(mean)

    def integers(self, low: int, high: int, shape: tuple[int, ...]) -> torch.Tensor:
        """Both ends included."""
        return drawing.integers(low, high, shape, self.rng, self.device)

    def scales(self, exponent: float) -> torch.Tensor:
        """A factor per row, 2^-exponent to 2^exponent; 1 where nothing may leave its range."""
        exponent = 0.0 if self.bounded else exponent
        return self.uniform(self.rows, -exponent, exponent).exp2_()


def _nominal(recipe: _Recipe) -> torch.Tensor:
    law = recipe.law
    match law.kind:
        case "uniform":
            return recipe.uniform(recipe.shape, law.a, law.b)
        case "normal":
            return recipe.normal(recipe.shape, law.a, law.b)
        case "integers":
            drawn = recipe.integers(int(law.a), int(law.b), recipe.shape)
            return drawn.to(recipe.precision) if recipe.element.is_float else drawn


def _scaled(recipe: _Recipe) -> torch.Tensor:
    usual = SCALE_EXPONENT.get(recipe.element.name, DEFAULT_EXPONENT)
    scales = recipe.scales(usual)
    if recipe.element.name not in SCALE_EXPONENT and not recipe.bounded:
        if not recipe.exponentiated:
            scales *= 2.0 ** float(recipe.rng.uniform(usual, WIDE_EXPONENT - usual))
        wide = recipe.uniform(recipe.rows) < WIDE_SHARE
        scales = torch.where(wide, recipe.scales(WIDE_EXPONENT).clamp_max_(2.0**usual), scales)
    return _nominal(recipe).mul_(scales)


def _integers(recipe: _Recipe) -> torch.Tensor:
    """Up to five neighbouring integers of the law's range; nominal values where it has none. One that declares
    no special zero, and is not bounded to a range with zero in it, holds none here either. Where the range, as that of
    a layer's weights, holds no other integer than 0, they are multiples of a power of two."""
    law = recipe.law
    ends = (law.a - 2 * law.b, law.a + 2 * law.b) if law.kind == "normal" else (law.a, law.b)
    largest = max(-ends[0], ends[1])
    step = 2.0 ** (math.floor(math.log2(largest)) - 1) if ends[0] <= 0 <= ends[1] and 0 < largest < 1 else 1.0
    low, high = math.ceil(ends[0] / step), math.floor(ends[1] / step)
    if low > high:
        return _nominal(recipe)
    low = max(low, min(-2, high - 4))  # around 0 where the range holds it
    drawn = recipe.integers(low, min(high, low + 4), recipe.shape).to(recipe.precision)
    if not recipe.bounded and "zero" not in recipe.specials:
        drawn.masked_fill_(drawn == 0, low or min(high, low + 4))
    return drawn.mul_(step)


def _structured(recipe: _Recipe) -> torch.Tensor:
    values = _nominal(recipe)
    values = values if values.ndim else values.reshape(1)
    if not values.numel():
        return values.reshape(recipe.shape)
    forms: list[Callable[[torch.Tensor, _Recipe], torch.Tensor]]
    forms = [_constant, _sorted, _reversed, _tied]
    if not recipe.bounded:
        forms.append(_dominated)
    if "zero" in recipe.specials:
        forms.append(_one_hot)
    return forms[recipe.rng.integers(len(forms))](values, recipe).reshape(recipe.shape)


def _constant(values: torch.Tensor, recipe: _Recipe) -> torch.Tensor:
    return values.reshape(-1)[:1].expand(values.numel()).clone()


def _sorted(values: torch.Tensor, recipe: _Recipe) -> torch.Tensor:
    return values.sort(dim=-1).values


def _reversed(values: torch.Tensor, recipe: _Recipe) -> torch.Tensor:
    return values.sort(dim=-1, descending=True).values


def _tied(values: torch.Tensor, recipe: _Recipe) -> torch.Tensor:
    """Few different values."""
    few = values.reshape(-1)[: recipe.rng.integers(2, 5)]
    return few[recipe.integers(0, len(few) - 1, tuple(values.shape))]


def _dominated(values: torch.Tensor, recipe: _Recipe) -> torch.Tensor:
    """One row, or one element of a vector, far larger than the rest."""
    values[recipe.rng.integers(values.shape[0])] *= DOMINANCE
    return values


def _one_hot(values: torch.Tensor, recipe: _Recipe) -> torch.Tensor:
    """At most one element of a row is not 0."""
    rows = values.reshape(-1, values.shape[-1])
    hot = recipe.integers(0, rows.shape[1] - 1, (rows.shape[0], 1))
    return torch.zeros_like(rows).scatter_(1, hot, rows.gather(1, hot))


def _few(recipe: _Recipe) -> torch.Tensor:
    """Zero but for some elements of every line along the longest axis, one of which has more digits than the others:
    strewn, side by side, or that one alone."""
    if recipe.bounded or "zero" not in recipe.specials:
        return _integers(recipe)
    shape, rng = recipe.shape or (1,), recipe.rng
    axis = int(np.argmax(shape))
    length = shape[axis]
    lines = math.prod(shape) // max(length, 1)
    count = min((FEW_MOST, FEW_MOST, 1)[form := int(rng.integers(3))], length)
    values = torch.zeros((lines, length), dtype=recipe.precision, device=recipe.device)
    if not values.numel():
        return values.reshape(recipe.shape)
    if form == 1:
        places = recipe.integers(0, length - count, (lines, 1)) + torch.arange(count, device=recipe.device)
    else:
        places = recipe.integers(0, length - 1, (lines, count))
    large = _odd(FEW_BITS[recipe.element.name], (lines, count), recipe)
    large[:, :1] = _odd(LONGEST_BITS[recipe.element.name], (lines, 1), recipe)
    if recipe.signed and rng.integers(2):
        large *= 2 * recipe.integers(0, 1, (lines, count)) - 1
    for part in (slice(1, None), slice(1)):  # the longest stays where places are the same
        values.scatter_(1, places[:, part].long(), large[:, part])
    others = [size for number, size in enumerate(shape) if number != axis]
    return values.reshape(*others, length).movedim(-1, axis).reshape(recipe.shape)


def _odd(bits: int, shape: tuple[int, ...], recipe: _Recipe) -> torch.Tensor:
    """Integers of so many bits, which no fewer hold."""
    least = 2 ** (bits - 1)
    odd: torch.Tensor = 2 * recipe.integers(0, least // 2 - 1, shape) + least + 1
    return odd.to(recipe.precision)


def _unnoticed(recipe: _Recipe) -> torch.Tensor:
    values, rng = _nominal(recipe), recipe.rng
    if recipe.bounded or recipe.law.kind == "integers" or not values.numel():
        return values
    if recipe.signed:
        values = torch.where(recipe.uniform(recipe.shape) < 2 * POSITIVE_SHARE - 1, values.abs(), values)
    if recipe.element.name in LEANS:
        shorter, longer = (_leant(values, bits, recipe) for bits in LEANS[recipe.element.name])
        values = torch.where(recipe.uniform(recipe.shape) < 0.5, shorter, longer)
    flat = values.reshape(-1).contiguous()
    largest = flat.topk(min(BESIDE, len(flat))).indices
    begin = int(rng.integers(len(flat) - len(largest) + 1))
    others = torch.ones(len(flat), dtype=torch.bool, device=flat.device)
    others[largest] = False
    rest, top = flat[others], flat[largest][torch.from_numpy(rng.permutation(len(largest))).to(flat.device)]
    return torch.cat((rest[:begin], top, rest[begin:])).reshape(recipe.shape)


def _leant(values: torch.Tensor, bits: int, recipe: _Recipe) -> torch.Tensor:
    """The same but for the digits behind so many, which are a quarter to a half of the last one before them."""
    dropped = round(-math.log2(recipe.element.unit_roundoff)) - bits
    words = values.contiguous().view(torch.int64 if values.element_size() == 8 else torch.int32)
    quarter = 1 << (dropped - 2)
    low = recipe.integers(quarter, 2 * quarter - 1, tuple(values.shape)).to(words.dtype)
    return (words & ~(4 * quarter - 1) | low).view(values.dtype)


def _specials(recipe: _Recipe) -> torch.Tensor:
    """Every kind of the recipe, in a few places, an overwhelming one last, so that nothing covers it."""
    values, rng = _nominal(recipe), recipe.rng
    if not values.numel() or not recipe.specials:
        return values
    for kind in sorted(recipe.specials, key=OVERWHELMING.__contains__):
        places = rng.integers(values.numel(), size=rng.integers(1, 4) + (kind in ("huge", "subnormal")))
        signs = rng.choice([-1.0, 1.0], size=places.size) if recipe.signed else np.ones(places.size)
        special = signs * _special(kind, recipe.element, places.size, rng)
        values.view(-1)[torch.from_numpy(places).to(values.device)] = torch.from_numpy(special).to(values)
    return values


def _special(kind: str, element: DType, count: int, rng: np.random.Generator) -> np.ndarray:
    info = torch.finfo(TORCH_DTYPES[element.name])
    usual = SCALE_EXPONENT.get(element.name, WIDE_EXPONENT)
    match kind:
        case "zero":
            return np.zeros(count)
        case "subnormal":
            last = info.smallest_normal * rng.uniform(2 * element.unit_roundoff, 1)
            return np.append(2.0 ** rng.uniform(math.log2(info.smallest_normal), -usual, size=count - 1), last)
        case "huge":
            last = HUGE[element.name] * rng.uniform(0.25, 1)
            return np.append(2.0 ** rng.uniform(usual, math.log2(HUGE[element.name]), size=count - 1), last)
        case "inf":
            return np.full(count, np.inf)
        case _:
            return np.full(count, np.nan)


def _mixture(recipe: _Recipe) -> torch.Tensor:
    """Scales, ties, zeros and order in proportions that are drawn, so that no shortcut can know them."""
    values, rng = _nominal(recipe), recipe.rng
    if not values.numel():
        return values
    values.mul_(recipe.scales(rng.uniform(0, SCALE_EXPONENT.get(recipe.element.name, MIXTURE_EXPONENT))))
    tie = values.reshape(-1)[0].clone()
    values = torch.where(recipe.uniform(recipe.shape) < rng.random() ** 2, tie, values)
    if "zero" in recipe.specials:
        values.masked_fill_(recipe.uniform(recipe.shape) < rng.random() ** 3, 0)
    if values.ndim:
        begin, end = np.sort(rng.integers(values.shape[-1] + 1, size=2))
        values[..., begin:end] = values[..., begin:end].sort(dim=-1).values
    return values


_MAKERS: Mapping[str, Callable[[_Recipe], torch.Tensor]] = {
    NOMINAL: _nominal, "scaled": _scaled, "integers": _integers, "structured": _structured, FEW: _few,
    UNNOTICED: _unnoticed,
    SPECIALS: _specials, "mixture": _mixture, **dict.fromkeys(CHANGED, _nominal),
}  # fmt: skip


# --- what the author of an operator is told of them -------------------------------------------------------------------


def departures(operator: Operator, dtype: str, family: str) -> Iterator[str]:
    """Where a family's inputs leave the distributions that operator.toml declares, and how it keeps them out."""
    floating = [t for t in operator.inputs if t.distribution is not None and resolve_dtype(t.dtype, dtype).is_float]
    strewn = {t.name: t.specials for t in floating if t.specials}
    if family == "specials" and strewn:
        yield f"specials inputs hold {_listed(strewn)}: `specials = []` there in operator.toml leaves these out"
    zeros = {name: ("zero",) for name, kinds in strewn.items() if "zero" in kinds}
    if family in ("structured", "mixture") and zeros:
        yield f"{family} inputs may hold {_listed(zeros)}: `specials = []` there in operator.toml leaves these out"
    free = ", ".join(f"`{t.name}`" for t in floating if not t.bounded)
    factors = {
        "scaled": 2 ** SCALE_EXPONENT.get(dtype, DEFAULT_EXPONENT),
        "mixture": 2 ** SCALE_EXPONENT.get(dtype, MIXTURE_EXPONENT),
        "structured": DOMINANCE,
    }
    if family == FAINT:
        yield "faint inputs are as small as faint() of reference.py makes them"
    if free and family in factors:
        yield (
            f"{family} inputs are up to {factors[family]:,.0f} times what their distributions draw in {free}: "
            "`bounded = true` there in operator.toml keeps them to their ranges"
        )


def _listed(kinds: Mapping[str, tuple[str, ...]]) -> str:
    """`zero in `a`, `c`; inf in `c``: tensors by what they hold."""
    by_kind: dict[str, list[str]] = {}
    for name, found in kinds.items():
        for kind in found:
            by_kind.setdefault(kind, []).append(f"`{name}`")
    return ", ".join(f"{kind} in {', '.join(names)}" for kind, names in by_kind.items())
