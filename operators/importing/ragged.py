"""Integers of a definition whose ranges no graph tells: offsets, places and lengths, found by trial and drawn.

A definition says that an input holds integers. Its constraints tell which are offsets (`total == indptr[-1].item()`).
Of the others the source itself is asked: it fails beyond the last place, and nothing changes beyond the largest length.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import torch

from operators.importing.foreign import Failed

Rule = tuple[str, list[str]]
"""`offsets`, `places` or `lengths`, and the axes whose product is the last offset, or the number of places, or the
largest length."""
Results = Callable[[Mapping[str, torch.Tensor]], Sequence[torch.Tensor]]
"""Executes the source with these inputs in the places of its own, and raises Failed where it fails."""


def drawn_integers(
    rules: Mapping[str, Rule], shapes: Mapping[str, Sequence[int]], sizes: Mapping[str, int]
) -> dict[str, torch.Tensor]:
    """Return integers by name for these sizes, drawn by torch's own generator.

    Rows between offsets that lie one beside the other are no shorter in the longer one, as the keys of a causal
    sequence are. Places are distinct while there are enough of them.
    """
    made: dict[str, torch.Tensor] = {}
    ends = {name: _size(axes, sizes) for name, (kind, axes) in rules.items() if kind == "offsets"}
    counts: dict[int, torch.Tensor] = {}
    for name in sorted(ends, key=ends.__getitem__):
        rows = shapes[name][0] - 1
        shorter = counts.get(rows, torch.zeros(max(rows, 0), dtype=torch.int64))
        counts[rows] = shorter + _parts(ends[name] - int(shorter.sum()), rows)
        made[name] = torch.cat((torch.zeros(1, dtype=torch.int64), counts[rows].cumsum(0)))
    for name, (kind, axes) in rules.items():
        size, shape = _size(axes, sizes), list(shapes[name])
        if kind == "lengths":
            made[name] = torch.randint(1, size + 1, shape)
        elif kind == "places":
            count = torch.Size(shape[-1:]).numel()
            rows = torch.Size(shape[:-1]).numel()
            each = [
                torch.randperm(size)[:count] if count <= size else torch.randint(0, size, (count,)) for _ in range(rows)
            ]
            made[name] = torch.stack(each).reshape(shape) if each else torch.zeros(shape, dtype=torch.int64)
    return made


def _size(axes: Sequence[str], sizes: Mapping[str, int]) -> int:
    return torch.Size([sizes[axis] for axis in axes]).numel()


def _parts(total: int, rows: int) -> torch.Tensor:
    """Return so many lengths, some of which may be 0, that come to a total."""
    if rows < 1:
        return torch.zeros(max(rows, 0), dtype=torch.int64)
    cuts = torch.cat(
        (torch.tensor([0]), torch.randint(0, max(total, 0) + 1, (rows - 1,)).sort().values, torch.tensor([total]))
    )
    return cuts.diff()


# --- by trial ---


def found_rules(
    waiting: Mapping[str, torch.Tensor], axes: Mapping[str, Sequence[str]], sizes: Mapping[str, int], run: Results
) -> Iterator[tuple[str, Rule]]:
    """Yield the rule of each input of integers that a trial tells; sizes of variable axes must be distinct.

    `waiting`: the inputs; `axes`: those of every tensor of the definition by name.
    """
    ends = dict[int, list[str]]()
    for shape in axes.values():
        for first in range(len(shape)):
            for last in range(first + 1, min(len(shape), first + 2) + 1):
                ends.setdefault(_size(shape[first:last], sizes), list(shape[first:last]))
    for name, tensor in waiting.items():
        if rule := _rule(lambda value, n=name, t=tensor: run({n: torch.full_like(t, value)}), ends):  # type: ignore[misc]
            yield name, rule


def _rule(run: Callable[[int], Sequence[torch.Tensor]], ends: Mapping[int, list[str]]) -> Rule | None:
    def result(value: int) -> Sequence[torch.Tensor] | None:
        try:
            return run(value)
        except Failed:
            return None

    beyond = max(ends) + 1
    far = result(beyond)
    for end in sorted(ends):
        last, after = result(end - 1), result(end)
        if far is None and last is not None and after is None:
            return "places", ends[end]
        if far is not None and last and after and same(after, far) and not same(last, far):
            return "lengths", ends[end]
    return None


def same(one: Sequence[torch.Tensor], other: Sequence[torch.Tensor]) -> bool:
    """Return whether results are equal, number by number."""
    return len(one) == len(other) and all(
        a.shape == b.shape and torch.equal(a.nan_to_num(), b.nan_to_num()) for a, b in zip(one, other, strict=True)
    )
