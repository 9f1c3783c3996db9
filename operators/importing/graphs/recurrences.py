"""Loops of recurrent layers: LSTM, GRU and plain ones, whose states depend on those of the step before.

A layer takes two launches for each of its directions: the products of all its inputs, and the steps of time. A row of
the batch depends on no other, so that it has a block of its own on cuda, which waits for its threads after each step.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from operators.importing.graphs.graph import Node
from operators.importing.graphs.kernels import Array, LoopKernel, Writer, stored
from operators.importing.graphs.reductions import product_with_rows


@dataclass(frozen=True)
class RecurrentCell:
    """One step of a hidden unit: b0, b1, ... are its gates' sums over the inputs, a0, a1, ... those over the state."""

    gates: int
    lines: tuple[str, ...]
    """Statements that set `v`, the new state, of the old one; an LSTM's set `w` too, the number that it keeps."""


def _sigmoid(text: str) -> str:
    return f"1 / (1 + exp(-({text})))"


CELLS: Mapping[str, RecurrentCell] = {
    "lstm": RecurrentCell(4, (
        f"w = w * ({_sigmoid('a1 + b1')}) + tanh(a2 + b2) * ({_sigmoid('a0 + b0')});",
        f"v = tanh(w) * ({_sigmoid('a3 + b3')});",
    )),
    "gru": RecurrentCell(3, (
        f"ACC n = tanh(b2 + a2 * ({_sigmoid('a0 + b0')}));",
        f"v = n + (v - n) * ({_sigmoid('a1 + b1')});",
    )),
    "rnn_tanh": RecurrentCell(1, ("v = tanh(a0 + b0);",)),
    "rnn_relu": RecurrentCell(1, ("v = a0 + b0 < 0 ? 0 : a0 + b0;",)),
}  # fmt: skip


@dataclass(frozen=True)
class Direction:
    """One way through the steps of a layer."""

    x: Array
    out: Array
    number: int
    """Among all directions of all layers."""
    place: int
    """Among those of its layer: the second one runs backwards."""
    starts: Sequence[Array]
    """States before the first step, of all directions."""
    ends: Sequence[Array | None]
    """The same after the last."""
    weights: Sequence[Array]
    """Those of the inputs and of the state; their biases where there are any."""
    projection: Array | None
    """A matrix that makes states of what the cell gives, which may be longer."""
    is_batch_first: bool

    def at(self, batch: str, time: str) -> list[str]:
        """The places of a step in the axes of batch and time."""
        return [batch, time] if self.is_batch_first else [time, batch]

    @property
    def batch(self) -> str:
        """Rows that do not depend on each other."""
        return self.x.shape[0 if self.is_batch_first else 1]

    @property
    def steps(self) -> str:
        """Steps of time."""
        return self.x.shape[1 if self.is_batch_first else 0]


def recurrence(
    writer: Writer, node: Node, x: Array, states: Any, weights: Sequence[Array], has_biases: bool, layers: int,
    dropout: float, train: bool, is_both_ways: bool, batch_first: bool,
) -> tuple[Array | None, ...]:  # fmt: skip
    """All layers, one after the other."""
    starts, own = (states if isinstance(states, list) else [states]), (4 if has_biases else 2)
    ways, ends = (2 if is_both_ways else 1), [None, *writer.results(node)[1:]]
    count = len(weights) // (layers * ways)
    dtype, shape = node.outputs[0].dtype, writer.shape(node)
    for layer in range(layers):
        is_last = layer == layers - 1 and (node.name, 0) in writer.used
        out = writer.result(node) if is_last else stored(writer.buffer(dtype, shape), shape, dtype)
        for place in range(ways):
            number = layer * ways + place
            given = weights[count * number : count * (number + 1)]
            projection = given[own] if count > own else None
            way = Direction(x, out, number, place, starts, ends[1:], given[:own], projection, batch_first)
            _written(writer, node, way)
        x = out
    return (x if (node.name, 0) in writer.used else None, *ends[1:])


def _written(writer: Writer, node: Node, way: Direction) -> None:
    """The launches of one direction of a layer."""
    cell, (rows, hidden), last = CELLS[node.op.split(".")[1]], way.weights[1].shape, way.projection
    hidden = last.shape[1] if last else hidden
    shape = (*way.x.shape[:2], rows)
    sums = stored(writer.buffer("ACC", shape), shape, "ACC")
    product_with_rows(writer, node, sums, way.x, way.weights[0], way.weights[2] if len(way.weights) > 2 else None)
    kept = stored(writer.buffer("ACC", (way.batch, hidden)), (way.batch, hidden), "ACC")
    made = stored(writer.buffer("ACC", (way.batch, hidden)), (way.batch, hidden), "ACC") if last else None
    with writer.kernel(node) as kernel, kernel.blocks(way.batch) as b, kernel.loop("s", way.steps) as s:
        kernel.line(f"long long t = {f'{kernel.size(way.steps)} - 1 - {s}' if way.place else s};")
        with kernel.threads("j", hidden) as j:
            _step(kernel, cell, way, sums, kept, [b, s, j], made)
        kernel.barrier()
        if last and made:
            with kernel.threads("p", last.shape[0]) as p:
                kernel.line("ACC v = 0;")
                with kernel.loop("r", hidden, adds_to="v") as r:
                    kernel.line(f"v += {kernel.get(made, [b, r])} * {kernel.get(last, [p, r], 'ACC')};")
                _hand_on(kernel, way, b, s, p)
            kernel.barrier()


def _step(
    kernel: LoopKernel, cell: RecurrentCell, way: Direction, sums: Array, kept: Array, place: Sequence[str],
    made: Array | None,
) -> None:  # fmt: skip
    """One step of a hidden unit; `made` gets its number where a projection makes the states."""
    b, s, j = place
    hidden, state, number = kept.shape[1], way.weights[1].shape[1], kernel.passed(way.number)

    def before(unit: str) -> str:
        ago = way.at(b, "t + 1" if way.place else "t - 1")
        own = unit if not way.place else f"{kernel.size(state)} + {unit}"
        start, later = kernel.get(way.starts[0], [number, b, unit], "ACC"), kernel.get(way.out, [*ago, own], "ACC")
        return f"{s} == 0 ? {start} : {later}"

    gates = [j if g == 0 else f"{g} * {kernel.size(hidden)} + {j}" for g in range(cell.gates)]
    for g, gate in enumerate(gates):
        bias = kernel.get(way.weights[3], [gate], "ACC") if len(way.weights) > 3 else "0"
        kernel.line(f"ACC a{g} = {bias}, b{g} = {kernel.get(sums, [*way.at(b, 't'), gate])};")
    with kernel.loop("r", state, adds_to=", ".join(f"a{g}" for g in range(cell.gates))) as r:
        kernel.line(f"ACC h = {before(r)};")
        for g, gate in enumerate(gates):
            kernel.line(f"a{g} += h * {kernel.get(way.weights[1], [gate, r], 'ACC')};")
    kernel.line(f"ACC v = {'0' if made else before(j)};")
    if len(way.starts) > 1:
        start = kernel.get(way.starts[1], [number, b, j], "ACC")
        kernel.line(f"ACC w = {s} == 0 ? {start} : {kernel.get(kept, [b, j])};")
    for line in cell.lines:
        kernel.line(line)
    if len(way.starts) > 1:
        kernel.put(kept, [b, j], "w")
    if made:
        kernel.put(made, [b, j], "v")
    else:
        _hand_on(kernel, way, b, s, j)
    _put_last(kernel, way, 1, "w", [b, s, j])


def _hand_on(kernel: LoopKernel, way: Direction, b: str, s: str, unit: str) -> None:
    """Store `v`, a number of the state, where the next step and the next layer find it."""
    size = kernel.size(way.weights[1].shape[1])
    kernel.put(way.out, [*way.at(b, "t"), unit if not way.place else f"{size} + {unit}"], "v")
    _put_last(kernel, way, 0, "v", [b, s, unit])


def _put_last(kernel: LoopKernel, way: Direction, which: int, value: str, place: Sequence[str]) -> None:
    """Store a number of the last step's states."""
    b, s, unit = place
    if which < len(way.ends) and (end := way.ends[which]) is not None:
        with kernel.braces(f"if ({s} == {kernel.size(way.steps)} - 1)"):
            kernel.put(end, [kernel.passed(way.number), b, unit], value)


ENTRIES: dict[str, Callable[..., Any]] = {f"aten.{name}.input": recurrence for name in CELLS}
