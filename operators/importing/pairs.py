"""Complex numbers as pairs of real ones: a recorded computation of such is recorded once more, without them.

Graphs and kernels know real numbers alone. What a problem takes and returns has a last axis of two in its complex
numbers' place. Fourier transforms are products with matrices of cosines and sines.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx
from torch._subclasses.fake_tensor import unset_fake_temporarily
from torch.utils import _pytree as pytree

from operators.importing.graphs.decompositions import name_of

PARTS = {torch.complex64: torch.float32, torch.complex128: torch.float64, torch.complex32: torch.float16}
"""Types of the real numbers in complex ones."""


@dataclass(frozen=True)
class Complex:
    """Real and imaginary parts."""

    real: Any
    imaginary: Any

    def both(self, function: Callable[[Any], Any]) -> Complex:
        """The pair of what a function makes of each part."""
        return Complex(function(self.real), function(self.imaginary))


def holds_complex(module: fx.GraphModule) -> bool:
    """Whether a recorded computation has complex numbers anywhere."""
    values = [leaf for node in module.graph.nodes for leaf in pytree.tree_leaves(node.meta.get("val"))]
    return any(isinstance(value, Tensor) and value.is_complex() for value in values)


def split(x: Tensor) -> Tensor:
    """A tensor of real numbers in the place of a complex one; others as they are."""
    return torch.view_as_real(x.resolve_conj()) if x.is_complex() else x


def pair_of(x: Any) -> Complex:
    """A number, or a tensor of any kind, as a pair."""
    if isinstance(x, Complex):
        return x
    if isinstance(x, complex):
        return Complex(x.real, x.imag)
    return Complex(x, torch.zeros_like(x) if isinstance(x, Tensor) else 0.0)


class RealParts(fx.Interpreter):
    """Executes a recorded computation with pairs in the places of complex tensors."""

    def call_function(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Execute an operator by its rule, or on both parts of its arguments. It raises ValueError for one without."""
        leaves = pytree.tree_leaves((args, kwargs), is_leaf=lambda leaf: isinstance(leaf, Complex))
        name = name_of(target)
        if name in MAKERS:
            return MAKERS[name](*args)
        if not any(isinstance(leaf, Complex | complex) for leaf in leaves):
            return self._real(target, name, args, kwargs)
        if name in RULES:
            return RULES[name](*args, **kwargs)
        if name in IN_PLACE_VIEWS:
            name, target = name[:-1], getattr(torch, name[:-1])
        if name not in BOTH:
            raise ValueError(f"no rule is known for aten.{name} of complex numbers")
        return _on_both(target, args, kwargs)

    @staticmethod
    def _real(target: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """An operator without complex arguments, whose result may be complex by its type."""
        if kwargs.get("dtype") not in PARTS:
            return target(*args, **kwargs)
        return pair_of(target(*args, **{**kwargs, "dtype": PARTS[kwargs["dtype"]]}))

    def get_attr(self, target: Any, args: Any, kwargs: Any) -> Any:
        """A constant."""
        found = super().get_attr(target, args, kwargs)
        if not (isinstance(found, Tensor) and found.is_complex()):
            return found
        with unset_fake_temporarily():
            return Complex(found.real.clone(), found.imag.clone())


def _on_both(target: Any, args: Any, kwargs: Any) -> Any:
    def part(of: str) -> Any:
        given = pytree.tree_map(
            lambda leaf: getattr(pair_of(leaf), of) if isinstance(leaf, Complex | complex) else leaf, (args, kwargs),
            is_leaf=lambda leaf: isinstance(leaf, Complex),
        )  # fmt: skip
        return target(*given[0], **{key: PARTS.get(value, value) for key, value in given[1].items()})

    real, imaginary = part("real"), part("imaginary")
    if isinstance(real, tuple | list):
        return [Complex(*each) for each in zip(real, imaginary, strict=True)]
    return Complex(real, imaginary) if isinstance(real, Tensor) else real


# --- rules -----------------------------------------------------------------------------------------------------------


def _add(a: Any, b: Any, *, alpha: Any = 1, sign: int = 1) -> Complex:
    one, other = pair_of(a), pair_of(b)
    return Complex(one.real + sign * alpha * other.real, one.imaginary + sign * alpha * other.imaginary)


def _sub(a: Any, b: Any, *, alpha: Any = 1) -> Complex:
    return _add(a, b, alpha=alpha, sign=-1)


def _product(function: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Complex]:
    def product(a: Any, b: Any) -> Complex:
        if not isinstance(a, Complex | complex):
            return pair_of(b).both(lambda part: function(a, part))
        if not isinstance(b, Complex | complex):
            return pair_of(a).both(lambda part: function(part, b))
        one, other = pair_of(a), pair_of(b)
        return Complex(
            function(one.real, other.real) - function(one.imaginary, other.imaginary),
            function(one.real, other.imaginary) + function(one.imaginary, other.real),
        )

    return product


def _mul(a: Any, b: Any) -> Complex:
    return _product(lambda one, other: one * other)(a, b)


def _conj(x: Any) -> Complex:
    return Complex(pair_of(x).real, -pair_of(x).imaginary)


def _squares(x: Complex) -> Any:
    return x.real * x.real + x.imaginary * x.imaginary


def _div(a: Any, b: Any) -> Complex:
    if not isinstance(b, Complex | complex):
        return pair_of(a).both(lambda part: part / b)
    squares = _squares(pair_of(b))
    return _mul(a, _conj(b)).both(lambda part: part / squares)


def _exp(x: Complex) -> Complex:
    size = torch.exp(x.real)
    return Complex(size * torch.cos(x.imaginary), size * torch.sin(x.imaginary))


def _copied(x: Any, *, dtype: Any = None, **_: Any) -> Any:
    if dtype is not None and dtype not in PARTS:
        return pair_of(x).real.to(dtype)
    return pair_of(x).both(lambda part: part if dtype is None else part.to(PARTS[dtype]))


def _power(x: Complex, exponent: Any) -> Complex:
    if not isinstance(exponent, int | float) or exponent != int(exponent) or not 1 <= exponent <= 8:
        raise ValueError("no rule is known for aten.pow of complex numbers with this exponent")
    found = x
    for _ in range(int(exponent) - 1):
        found = _mul(found, x)
    return found


def _where(condition: Any, a: Any, b: Any) -> Complex:
    one, other = pair_of(a), pair_of(b)
    return Complex(torch.where(condition, one.real, other.real), torch.where(condition, one.imaginary, other.imaginary))


def _polar(size: Tensor, angle: Tensor) -> Complex:
    return Complex(size * torch.cos(angle), size * torch.sin(angle))


# --- Fourier transforms: x y = sum_j x_j exp(-2 pi i j k / n), by products with matrices ---


def _waves(rows: Any, columns: Any, n: Any, like: Tensor) -> tuple[Tensor, Tensor]:
    """Cosines and sines of 2 pi j k / n; j k is taken modulo n, which costs no precision."""
    turns = torch.arange(rows, device=like.device)[:, None] * torch.arange(columns, device=like.device)[None, :] % n
    angles = turns.to(like.dtype) * (2 * math.pi / n)
    return torch.cos(angles), torch.sin(angles)


def _along(x: Tensor, matrix: Tensor, dim: int) -> Tensor:
    """The product of each line of x along an axis with a matrix."""
    last = x.movedim(dim, -1)
    rows = last.reshape(math.prod(last.shape[:-1]), last.shape[-1]) @ matrix
    return rows.reshape(*last.shape[:-1], matrix.shape[1]).movedim(-1, dim)


def _scaled(x: Any, sizes: Sequence[Any], normalization: int) -> Any:
    count = math.prod(sizes)
    factor = {0: None, 1: 1 / torch.sym_sqrt(count), 2: 1 / count}[normalization]
    return x if factor is None else x.both(lambda p: p * factor) if isinstance(x, Complex) else x * factor


def _fft(x: Any, dims: Sequence[int], normalization: int, forward: bool) -> Complex:
    found = pair_of(x)
    for dim in dims:
        n = found.real.shape[dim]
        cosines, sines = _waves(n, n, n, found.real)
        sines = -sines if forward else sines
        real = _along(found.real, cosines, dim) - _along(found.imaginary, sines, dim)
        found = Complex(real, _along(found.real, sines, dim) + _along(found.imaginary, cosines, dim))
    return _scaled(found, [found.real.shape[dim] for dim in dims], normalization)  # type: ignore[no-any-return]


def _fft_of_real(x: Tensor, dims: Sequence[int], normalization: int, onesided: bool) -> Complex:
    *others, last = dims
    n = x.shape[last]
    cosines, sines = _waves(n, n // 2 + 1 if onesided else n, n, x)
    found = _fft(Complex(_along(x, cosines, last), _along(x, -sines, last)), others, 0, True)
    return _scaled(found, [x.shape[dim] for dim in dims], normalization)  # type: ignore[no-any-return]


def _fft_to_real(x: Any, dims: Sequence[int], normalization: int, n: Any) -> Tensor:
    *others, last = dims
    found = _fft(x, others, 0, False)
    half = found.real.shape[last]
    cosines, sines = _waves(half, n, n, found.real)
    place = torch.arange(half, device=found.real.device)
    once = (place == 0) | (2 * place == n)  # each of the others stands for its conjugate too
    weight = torch.where(once, 1.0, 2.0).to(found.real.dtype)[:, None]
    y = _along(found.real, cosines * weight, last) - _along(found.imaginary, sines * weight, last)
    sizes = [*(found.real.shape[dim] for dim in others), n]
    return _scaled(y, sizes, normalization)  # type: ignore[no-any-return]


def transformed(mode: Any, func: Any, x: torch.Tensor, dims: Sequence[int], normalization: int, last: Any) -> Any:
    """The shape of a Fourier transform; torch's own resizes a tensor, which no symbol allows."""
    sizes, to_real = list(x.shape), "c2r" in func._schema.name
    if to_real or ("r2c" in func._schema.name and last):
        sizes[dims[-1]] = last if to_real else sizes[dims[-1]] // 2 + 1
    with mode:
        return x.new_empty(sizes, dtype=x.dtype.to_real() if to_real else x.dtype.to_complex())


MAKERS: Mapping[str, Callable[..., Any]] = {
    "view_as_complex": lambda x: Complex(x[..., 0], x[..., 1]), "complex": Complex, "polar": _polar,
    "_fft_r2c": _fft_of_real, "_fft_c2c": _fft, "_fft_c2r": _fft_to_real,
}  # fmt: skip
"""Operators whose arguments or results are complex."""
RULES: Mapping[str, Callable[..., Any]] = {
    "add": _add, "sub": _sub, "mul": _mul, "div": _div, "exp": _exp, "_conj": _conj, "conj_physical": _conj,
    "view_as_real": lambda x: torch.stack([x.real, x.imaginary], -1), "real": lambda x: x.real,
    "imag": lambda x: x.imaginary, "abs": lambda x: torch.sqrt(_squares(x)), "_to_copy": _copied, "pow": _power,
    "angle": lambda x: torch.atan2(x.imaginary, x.real), "reciprocal": lambda x: _div(1.0, x), "where": _where,
    **dict.fromkeys(("mm", "bmm", "matmul", "mv", "dot"), _product(torch.matmul)),
}  # fmt: skip
"""Operators that mix the parts of complex numbers."""
IN_PLACE_VIEWS = ("transpose_", "squeeze_", "unsqueeze_", "t_")
"""Operators that change what a tensor looks like, as a tracer finds them."""
BOTH = frozenset((
    "view", "_unsafe_view", "reshape", "permute", "transpose", "t", "expand", "unsqueeze", "squeeze", "slice", "select",
    "cat", "stack", "index", "clone", "alias", "flip", "roll", "repeat", "gather", "index_select", "constant_pad_nd",
    "split", "split_with_sizes", "unbind", "slice_scatter", "select_scatter", "sum", "mean", "cumsum", "neg", "detach",
    "lift_fresh_copy", "diagonal", "sym_size", "copy", "resolve_conj", "resolve_neg", "getitem", "index_put", "tril",
    "triu", "zeros_like", "unfold", "narrow", "embedding", "scatter_add", "index_add",
))  # fmt: skip
"""Operators that do to both parts what they do to real numbers."""
