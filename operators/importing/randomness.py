"""Random numbers that a source draws: they are inputs of its task, so that a result is right or wrong.

What a source computes is a function of the numbers it draws. Rules make every operator that draws out of two: numbers
of [0, 1), and normal ones. The rules hold while a problem is recorded, where these two become inputs of its graph, and
while it is executed for real, with numbers that the graph is given too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor

from operators.importing.foreign import Failed
from operators.importing.graphs.mode import DispatchMode
from operators.importing.graphs.symbols import value_of

ATEN = torch.ops.aten
MADE: Mapping[str, Callable[..., Tensor]] = {"uniform": torch.rand, "normal": torch.randn}
"""The functions of torch that draw, by law."""
LAWS = {function.__name__: law for law, function in MADE.items()}
"""The laws of what is drawn, by the operators that are left of those."""
RANDOM = "random"
"""The origin of such an input."""


class RandomNumbers:
    """The random numbers of one execution, by law, in the order in which they are drawn."""

    def __init__(self, given: Sequence[tuple[str, Tensor]] = (), *, alike: bool = False) -> None:
        self.drawn, self.place = list(given), 0
        self.by: list[str] = []
        """The operators of the source that each is drawn by."""
        self.operator = ""
        self.is_given = bool(given)
        self.alike = alike
        """Whether draws of one law and shape are all the same numbers, as those of rows one by one."""

    def again(self) -> None:
        """Begin once more: another way through the source draws the same numbers."""
        self.place = 0

    def take(self, law: str, shape: Sequence[Any], dtype: torch.dtype | None = None) -> Tensor:
        """The next numbers, in fp32 where no type is named. It raises Failed where those that are known are others."""
        at = self._of_shape(law, shape) if self.alike else self.place
        self.place += 1
        if at == len(self.drawn) and not self.is_given:
            with drawing(None):  # these are recorded as they are
                self.drawn.append((law, MADE[law](shape, dtype=dtype)))
            self.by.append(self.operator)
        elif at >= len(self.drawn) or not self._fits(at, law, shape):
            raise Failed("which random numbers it draws hangs on values of its tensors, which no graph can say")
        return self.drawn[at][1].to(dtype or torch.float32)

    def _of_shape(self, law: str, shape: Sequence[Any]) -> int:
        return next((at for at in range(len(self.drawn)) if self._fits(at, law, shape)), len(self.drawn))

    def _fits(self, at: int, law: str, shape: Sequence[Any]) -> bool:
        known, numbers = self.drawn[at]
        return known == law and list(map(value_of, numbers.shape)) == list(map(value_of, shape))


_sources: list[RandomNumbers | None] = []


@contextmanager
def drawing(numbers: RandomNumbers | None) -> Iterator[None]:
    """Let operators that draw take these numbers while they are recorded; None: they draw themselves."""
    _sources.append(numbers)
    try:
        yield
    finally:
        _sources.pop()


class Drawing(DispatchMode):  # type: ignore[no-untyped-call]
    """Executes operators that draw with numbers that are given."""

    def __init__(self, numbers: RandomNumbers) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.numbers = numbers

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Call the operator, or its rule."""
        kwargs, plain = kwargs or {}, IN_PLACE.get(func)
        rule = RULES.get(plain or func)
        if rule is None:
            return func(*args, **kwargs)
        with drawing(self.numbers):
            found = rule(*args, **kwargs)
        return args[0].copy_(found) if plain else found


# --- rules ------------------------------------------------------------------------------------------------------------


def _numbers(law: str, shape: Sequence[Any], dtype: torch.dtype | None = None) -> Tensor:
    numbers = _sources[-1]
    assert numbers is not None
    return numbers.take(law, shape, dtype)


def _rule(law: str) -> Callable[..., Tensor]:
    def drawn(size: Any, *, dtype: Any = None, **_: Any) -> Tensor:
        return _numbers(law, size, dtype)

    return drawn


def _like(law: str) -> Callable[..., Tensor]:
    def drawn(x: Tensor, *, dtype: Any = None, **_: Any) -> Tensor:
        return _numbers(law, x.shape, dtype or x.dtype)

    return drawn


def _uniform(x: Tensor, *ends: float, generator: Any = None, **named: float) -> Tensor:
    low, high = [*ends, *(named.get("from", 0.0), named.get("to", 1.0))[len(ends) :]]
    found: Tensor = _numbers("uniform", x.shape, x.dtype) * (high - low) + low
    return found


def _normal(x: Tensor, mean: float = 0.0, std: float = 1.0, *, generator: Any = None) -> Tensor:
    return _numbers("normal", x.shape, x.dtype) * std + mean


def _normal_of(mean: Any, std: Any = 1.0, *, generator: Any = None) -> Tensor:
    like = mean + std  # of both of their shapes
    found: Tensor = _numbers("normal", like.shape, like.dtype) * std + mean
    return found


def _is_one(p: Any, shape: Sequence[Any], dtype: torch.dtype) -> Tensor:
    found: Tensor = (_numbers("uniform", shape) < p).to(dtype)
    return found


def _bernoulli(p: Tensor, *, generator: Any = None) -> Tensor:
    return _is_one(p, p.shape, p.dtype)


def _bernoulli_of(x: Tensor, p: Any = 0.5, *, generator: Any = None) -> Tensor:
    return _is_one(p, x.shape, x.dtype)


def _exponential(x: Tensor, rate: float = 1.0, *, generator: Any = None) -> Tensor:
    return -torch.log1p(-_numbers("uniform", x.shape, x.dtype)) / rate


def _multinomial(p: Tensor, count: int, replacement: bool = False, *, generator: Any = None) -> Tensor:
    """The places whose cumulative shares are the first above the numbers."""
    if count != 1 and not replacement:
        raise Failed(f"it draws {count} places without replacement (torch.multinomial), which hang on each other")
    numbers = _numbers("uniform", [*p.shape[:-1], count])
    shares = p / p.sum(-1, keepdim=True)
    below = shares.cumsum(-1).unsqueeze(-2) <= numbers.unsqueeze(-1)
    return below.sum(-1).clamp(max=p.shape[-1] - 1)


def _integers(low: Any, high: Any, size: Sequence[Any], dtype: Any = None) -> Tensor:
    found: Tensor = (_numbers("uniform", size) * (high - low)).floor().to(dtype or torch.int64) + low
    return found


def _integers_below(high: Any, size: Sequence[Any], *, dtype: Any = None, **_: Any) -> Tensor:
    return _integers(0, high, size, dtype)


def _integers_from(low: Any, high: Any, size: Sequence[Any], *, dtype: Any = None, **_: Any) -> Tensor:
    return _integers(low, high, size, dtype)


def _order(count: Any, *, dtype: Any = None, **_: Any) -> Tensor:
    return torch.sort(_numbers("uniform", [count]), stable=True)[1].to(dtype or torch.int64)


def _native(x: Tensor, p: float, train: bool | None) -> tuple[Tensor, Tensor]:
    if train is False or p == 0:
        return x.clone(), torch.ones_like(x, dtype=torch.bool)
    kept = _numbers("uniform", x.shape) < 1 - p
    return x * kept * (1 / (1 - p) if p < 1 else math.inf), kept


def _sloped(
    x: Tensor, noise: Tensor, lower: float = 1 / 8, upper: float = 1 / 3, training: bool = False, generator: Any = None
) -> Tensor:
    """The result of rrelu with a slope for each element, which it keeps for a gradient."""
    slope: Any = (lower + upper) / 2
    if training:
        slope = _numbers("uniform", x.shape, x.dtype) * (upper - lower) + lower
    return torch.where(x < 0, x * slope, x)


def _sloped_and_noise(x: Tensor, noise: Tensor, *given: Any, **named: Any) -> tuple[Tensor, Tensor]:
    return _sloped(x, noise, *given, **named), noise


ALPHA = 1.7580993408473766
"""The number that dropped ones become in networks that normalize themselves, but for its sign."""


def dropped(x: Tensor, p: float, train: bool, *, whole: bool = False, alpha: bool = False) -> Tensor:
    """The result of torch's dropout, which asks for the number of elements; `whole`: of each channel's elements or of
    none."""
    if p == 0 or not train:
        return x
    shape = [*x.shape[:2], *[1] * (x.dim() - 2)] if whole else x.shape
    kept = x.new_empty(shape).bernoulli_(1 - p)
    if not alpha:
        return x * (kept / (1 - p)) if p < 1 else x * 0
    scale = 1 / math.sqrt((ALPHA * ALPHA * p + 1) * (1 - p))
    return x * (kept * scale) + ((kept - 1) * (ALPHA * scale) + ALPHA * scale * p)


def attended(
    query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None, dropout_p: float = 0.0,
    is_causal: bool = False, scale: float | None = None, enable_gqa: bool = False,
) -> Tensor:  # fmt: skip
    """The result of torch's attention, with a dropout of its own."""
    if not dropout_p:
        return torch._C._nn.scaled_dot_product_attention(
            query, key, value, attn_mask, 0.0, is_causal, scale=scale, enable_gqa=enable_gqa
        )
    if enable_gqa:
        key, value = (x.repeat_interleave(query.shape[-3] // x.shape[-3], -3) for x in (key, value))
    scores = query @ key.mT * (1 / math.sqrt(query.shape[-1]) if scale is None else scale)
    if is_causal:
        attn_mask = torch.ones(query.shape[-2], key.shape[-2], dtype=torch.bool, device=query.device).tril()
    if attn_mask is not None:
        scores = scores.masked_fill(~attn_mask, -math.inf) if attn_mask.dtype == torch.bool else scores + attn_mask
    return dropped(scores.softmax(-1), dropout_p, True) @ value


def prepare_dropouts() -> None:
    """Let torch's modules drop and attend by these, however deep a call of theirs is."""
    forms: dict[str, dict[str, bool]] = {
        "dropout": {},
        "feature_dropout": {"whole": True},
        "alpha_dropout": {"alpha": True},
    }
    forms["feature_alpha_dropout"] = {"whole": True, "alpha": True}
    for name, form in forms.items():
        setattr(torch._VF, name, partial(dropped, **form))  # type: ignore[arg-type]
        setattr(torch._VF, f"{name}_", partial(_dropped_in_place, **form))  # type: ignore[arg-type]
        setattr(torch, name, getattr(torch._VF, name))
    torch.nn.functional.scaled_dot_product_attention = attended


def _dropped_in_place(x: Tensor, p: float, train: bool, **form: bool) -> Tensor:
    return x.copy_(dropped(x, p, train, **form))


def _named(*names: str) -> list[Any]:
    """Operators of these names, as far as this torch has them."""
    found = (getattr(getattr(ATEN, name, None), overload, None) for name, overload in (n.split(".") for n in names))
    return [each for each in found if each is not None]


RULES: Mapping[Any, Callable[..., Any]] = {
    **dict.fromkeys(_named("rand.default", "rand.generator"), _rule("uniform")),
    **dict.fromkeys(_named("randn.default", "randn.generator"), _rule("normal")),
    **dict.fromkeys(_named("rand_like.default"), _like("uniform")),
    **dict.fromkeys(_named("randn_like.default"), _like("normal")),
    **dict.fromkeys(_named("uniform.default"), _uniform),
    **dict.fromkeys(_named("normal_functional.default"), _normal),
    **dict.fromkeys(_named("normal.Tensor_Tensor", "normal.Tensor_float", "normal.float_Tensor"), _normal_of),
    **dict.fromkeys(_named("bernoulli.default"), _bernoulli),
    **dict.fromkeys(_named("bernoulli.p", "bernoulli.Tensor"), _bernoulli_of),
    **dict.fromkeys(_named("exponential.default"), _exponential),
    **dict.fromkeys(_named("multinomial.default"), _multinomial),
    **dict.fromkeys(_named("randint.default", "randint.generator"), _integers_below),
    **dict.fromkeys(_named("randint.low", "randint.low_generator"), _integers_from),
    **dict.fromkeys(_named("randperm.default", "randperm.generator"), _order),
    **dict.fromkeys(_named("native_dropout.default"), _native),
    **dict.fromkeys(_named("rrelu_with_noise.default"), _sloped),
    **dict.fromkeys(_named("rrelu_with_noise_functional.default"), _sloped_and_noise),
}
"""By operator; numbers to compare with a probability are fp32, whatever the type of what is compared."""
IN_PLACE: Mapping[Any, Any] = {
    getattr(getattr(ATEN, name), overload): getattr(getattr(ATEN, plain), of)
    for name, overload, plain, of in (
        ("uniform_", "default", "uniform", "default"), ("normal_", "default", "normal_functional", "default"),
        ("bernoulli_", "float", "bernoulli", "p"), ("bernoulli_", "Tensor", "bernoulli", "Tensor"),
        ("exponential_", "default", "exponential", "default"),
        ("rrelu_with_noise_", "default", "rrelu_with_noise", "default"),
    )
}  # fmt: skip
"""Operators that draw into their first argument, and those that return what they draw."""


def rules_beside(before: Mapping[Any, Callable[..., Any]]) -> dict[Any, Callable[..., Any]]:
    """The rules for a table of decompositions, whose own hold outside of `drawing`."""

    def either(func: Any, rule: Callable[..., Any]) -> Callable[..., Any]:
        def called(*args: Any, **kwargs: Any) -> Any:
            if _sources and (numbers := _sources[-1]):
                numbers.operator = func.overloadpacket.__name__
                return rule(*args, **kwargs)
            return before[func](*args, **kwargs) if func in before else NotImplemented

        return called

    return {func: either(func, rule) for func, rule in RULES.items()}
