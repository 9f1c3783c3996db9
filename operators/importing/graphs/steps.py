"""Samples of the errors of recurrent layers, for `sampled`: each step of time hands its errors on to the next one.

Torch takes such a layer apart into a dozen operators for each step, which to follow one by one takes minutes for the
hundreds of steps that networks have.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import _disable_current_modes

from operators.importing.graphs.graph import RECURRENCES, aten
from operators.importing.graphs.recurrences import CELLS as LOOPS
from operators.shared.errors import DIVISION_ULPS, EXP_ULPS, SINE_ULPS


class SampleOfErrors(Protocol):
    """The sample of errors by which results are moved."""

    granted: float
    is_alike: bool
    most: float
    stored: float

    def keep(self, y: Any, error: Any) -> None:
        """Keep the error of a result."""

    def signs(self, shape: Sequence[int], device: torch.device) -> Tensor:
        """Up or down by chance."""

    def sums(self, terms: int) -> float:
        """The growth of the error of a sum."""


class Stepwise(TorchFunctionMode):
    """Executes recurrences with the errors that a sample moves their results by."""

    def __init__(self, run: SampleOfErrors) -> None:
        super().__init__()
        self.run, self.names = run, {aten(name): name.split(".")[1] for name in RECURRENCES}

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Call the function, or execute all its steps."""
        if func not in self.names:
            return func(*args, **(kwargs or {}))
        with _disable_current_modes():
            return _recurrence(self.run, self.names[func], *args)


class _Weights:
    """The weights of one direction of a layer."""

    def __init__(self, run: SampleOfErrors, own: Sequence[Tensor], has_biases: bool) -> None:
        self.run, self.given, self.state = run, own[0], own[1]
        self.biases = own[2:4] if has_biases else [own[0].new_zeros(()), own[0].new_zeros(())]
        self.projection = own[-1] if len(own) % 2 else None
        self.sizes = {id(each): each.abs().T for each in own if each.dim() == 2}
        """Magnitudes by matrix."""

    def product(self, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """A product with a matrix whose rows belong to results, and its error; what leaves the range is any number."""
        size = x.abs() @ self.sizes[id(weight)]
        y = (x @ weight.T).masked_fill_(size > self.run.most, torch.nan)
        error = self.run.sums(x.shape[-1]) * size
        if bias is None:
            return y, error
        error = error.add_(bias.abs(), alpha=0.5).add_(y.abs(), alpha=self.run.stored)
        y = y + bias
        return y, error.add_(y.abs(), alpha=0.5)


class _Step:
    """The results of one step, each moved up or down."""

    def __init__(self, run: SampleOfErrors, signs: Tensor, widths: Sequence[int]) -> None:
        self.stored, self.waiting = run.stored, iter(torch.split(signs, list(widths), -1))

    def moved(self, y: Tensor, error: Tensor | None = None) -> Tensor:
        """A result with its own error: that of one rounding, where none is given."""
        size = y.abs()
        error = size / 2 if error is None else error
        if self.stored:
            error = error.add(size, alpha=self.stored)
        return y.addcmul(error, next(self.waiting))

    def sigmoid(self, x: Tensor) -> Tensor:
        """The sigmoid of each number."""
        y = torch.sigmoid(x)
        return self.moved(y, (x.abs() + (EXP_ULPS + DIVISION_ULPS)) * y)

    def tanh(self, x: Tensor) -> Tensor:
        """The hyperbolic tangent of each number."""
        y = torch.tanh(x)
        return self.moved(y, torch.full_like(y, SINE_ULPS))

    def mixed(self, a: Tensor, b: Tensor, c: Tensor) -> Tensor:
        """a + b c, whose product is rounded before it is added."""
        product = b * c
        y = a + product
        return self.moved(y, product.abs().mul_((1 + self.stored) / 2).add_(y.abs(), alpha=0.5))


def _lstm(step: _Step, given: Tensor, apart: Tensor, states: Sequence[Tensor]) -> list[Tensor]:
    sums = given + apart
    enters, stays, _, shows = step.sigmoid(sums).chunk(4, -1)
    fresh = step.moved(enters * step.tanh(sums.chunk(4, -1)[2]))
    kept = step.mixed(fresh, stays, states[1])
    return [step.moved(shows * step.tanh(kept)), kept]


def _gru(step: _Step, given: Tensor, apart: Tensor, states: Sequence[Tensor]) -> list[Tensor]:
    two = 2 * states[0].shape[-1]
    resets, stays = step.sigmoid(given[:, :two] + apart[:, :two]).chunk(2, -1)
    fresh = step.tanh(step.mixed(given[:, two:], resets, apart[:, two:]))
    return [step.mixed(fresh, stays, step.moved(states[0] - fresh))]


def _tanh(step: _Step, given: Tensor, apart: Tensor, states: Sequence[Tensor]) -> list[Tensor]:
    return [step.tanh(given + apart)]


def _relu(step: _Step, given: Tensor, apart: Tensor, states: Sequence[Tensor]) -> list[Tensor]:
    return [torch.relu(given + apart)]


Cell = Callable[[_Step, Tensor, Tensor, Sequence[Tensor]], list[Tensor]]
CELLS: Mapping[str, tuple[Cell, tuple[int, ...]]] = {
    "lstm": (_lstm, (4, 1, 1, 1, 1, 1)), "gru": (_gru, (2, 1, 1, 1, 1)), "rnn_tanh": (_tanh, (1,)),
    "rnn_relu": (_relu, ()),
}  # fmt: skip
"""By operator: the states after a step, from what all gates sum of the input, what they sum of the state, and the
states before; and the widths of its moves in their order, in hidden sizes."""


def _direction(
    run: SampleOfErrors, name: str, x: Tensor, weights: _Weights, states: list[Tensor], is_backwards: bool
) -> tuple[Tensor, list[Tensor]]:
    """The states of all steps, and the last ones."""
    (cell, moves), hidden = CELLS[name], weights.state.shape[0] // LOOPS[name].gates
    given, error = weights.product(x, weights.given, weights.biases[0])
    run.keep(given, error.add_(given.abs(), alpha=run.stored))
    widths = [weights.state.shape[0], *(count * hidden for count in moves)]
    widths += [states[0].shape[-1]] if weights.projection is not None else []
    if run.is_alike:
        signs = run.signs((len(x), 1, len(widths)), x.device)
        signs = signs.repeat_interleave(torch.tensor(widths, device=x.device), 2)
    else:
        signs = run.signs((len(x), x.shape[1], sum(widths)), x.device)
    signs, outs = signs.to(x.dtype).mul_(run.granted), list(given)
    for number in reversed(range(len(outs))) if is_backwards else range(len(outs)):
        step = _Step(run, signs[number], widths)
        apart, error = weights.product(states[0], weights.state, weights.biases[1])
        of_sum = (given[number] + apart).abs()
        states = cell(step, given[number], step.moved(apart, error.add_(of_sum, alpha=0.5 + run.stored)), states)
        if weights.projection is not None:
            states[0] = step.moved(*weights.product(states[0], weights.projection))
        outs[number] = states[0]
    return torch.stack(outs), states


def _recurrence(
    run: SampleOfErrors, name: str, x: Tensor, states: Any, weights: Sequence[Tensor], has_biases: bool, layers: int,
    dropout: float, train: bool, is_both_ways: bool, batch_first: bool,
) -> tuple[Tensor, ...]:  # fmt: skip
    """The results of torch's operator, moved."""
    starts, ways = (states if isinstance(states, list | tuple) else [states]), 1 + is_both_ways
    count = len(weights) // (layers * ways)
    ends: list[list[Tensor]] = []
    y = x.transpose(0, 1) if batch_first else x
    for layer in range(layers):
        found = []
        for number in range(layer * ways, (layer + 1) * ways):
            own = _Weights(run, weights[count * number : count * (number + 1)], has_biases)
            out, end = _direction(run, name, y, own, [each[number] for each in starts], number % ways == 1)
            found.append(out)
            ends.append(end)
        y = torch.cat(found, 2)
    return (y.transpose(0, 1) if batch_first else y, *map(torch.stack, zip(*ends, strict=True)))
