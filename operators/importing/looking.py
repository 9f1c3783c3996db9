"""Looks at a foreign problem once: `python -m operators.importing.looking`, in a jail, in a folder with `request.json`.

The problem is executed with symbols in the places of its sizes (`operators.importing.tracing`), its computation is
recorded as core ATen operators, and both are tried for real at small sizes. `result.json` is what is found: data, no
code.
"""

from __future__ import annotations

import json
import math
import random
import re
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import sympy
import torch
from torch.utils import _pytree as pytree

from operators.definition.forms import tensors_bytes
from operators.drawing import NOMINAL
from operators.dtypes import DTYPES
from operators.errors import OperatorError
from operators.expression import MAX_CHARACTERS
from operators.importing.draws import near_zero, observed, shrunk, varied
from operators.importing.executing import executed
from operators.importing.foreign import Failed, Unrolled, foreign
from operators.importing.graphs.faint import Level, leaning, levels
from operators.importing.graphs.graph import RECURRENCES, Graph, checked, evaluate
from operators.importing.graphs.inputs import Making, made_inputs, making_of
from operators.importing.graphs.symbols import Unwritable, at
from operators.importing.makers import made_by_source
from operators.importing.problems import KINDS, Problem, problem_of
from operators.importing.randomness import RANDOM, Drawing, RandomNumbers
from operators.importing.rounding.running import running, sampled
from operators.importing.substitutes import prepare_torch
from operators.importing.tracing import REAL_S, Leaves, Recorded, Symbolic, Untraced, again, attempts

LARGE = 2.0**45
"""Factor by which inputs of a verdict are larger than those of the source at most."""
LOOK_S = 500
"""Seconds that a whole look may compute."""
EXECUTE_S = 240
"""Seconds that the trials of a source that is executed as it is may compute."""
MOST_ELEMENTS = 3_000_000
"""Elements of all values of a computation that is tried for real."""
MOST_HEAVY = 400e6
"""The same of one that cannot be tried with fewer."""
MOST_CONSTANTS = 50e6
"""Elements of a definition's inputs that are judged at its own sizes, with ones for all variable axes."""
FAINT_S = 10
"""Seconds in which the inputs are looked for that small constants decide the results of."""
FINITE_S, FINITE_DRAWS, FEW_ROWS = 5, 8, 4
"""Seconds, draws and rows by which it is told whether normal numbers give a definition finite results."""
MOST_WORK = 100_000_000
"""Operations at a hidden shape: plain loops take tenths of a second for them."""
STEP_WORK = 50_000
"""Operations that a step of time counts as, for each of its matrices: samples of its errors take a tenth of a
millisecond."""
Change = Callable[[torch.Tensor], torch.Tensor]
MOST_DEGENERATE = 4
"""The smallest hidden shapes at which zeros and large numbers are tried: there they make up whole rows."""
MOST_TRIED = 16
"""Inputs that are tried one by one."""
MOST_SMALL = 1 << 29
"""Elements of all values in the workload set `small`: 4 GiB in fp64."""
MOST_QUICK, MOST_QUICK_WORK = 30_000_000, 3e9
"""Elements, and operations, of recorded calls that are workloads of the set `cpu` too: plain loops take a second."""
MOST_LOST = 1 / 2
"""Share of results that may leave the range of the source's type."""
SCALES = (1.0, 1 / 8, 1 / 64, 1 / 512)
"""Factors of what a source draws, tried until results keep to their range."""
SHORT = (torch.float16, torch.bfloat16)
FLOATING = ("T", "ACC", "fp16", "bf16", "fp32", "fp64")
WIDEST = 1e4
"""Largest median of S, as a multiple of the largest result, for which analysed errors tell right from wrong."""
NO_BOUND = 1e200
"""A larger S lets any number pass."""


# --- real sizes -------------------------------------------------------------------------------------------------------


def real(
    problem: Problem,
    sizes: Mapping[str, int],
    seed: int,
    scale: float,
    ranges: Mapping[str, tuple[int, int]],
    numbers: RandomNumbers,
) -> tuple[Leaves, list[torch.Tensor], Any]:
    """The problem executed at these sizes: its leaves, `scale` times what made them, or integers of `ranges`, copies of
    its tensors, and what it computes with random numbers."""
    torch.manual_seed(seed)
    random.seed(seed)
    leaves = Leaves(*problem.made(lambda name: sizes[name]))
    if scale != 1:
        leaves.tensors = [x.detach() * scale if x.is_floating_point() else x for x in leaves.tensors]
    for name, (low, high) in ranges.items():
        number = leaves.names.index(name)
        old = leaves.tensors[number]
        leaves.tensors[number] = torch.randint(low, high + 1, old.shape, dtype=old.dtype)
    tensors = [tensor.detach().clone() for tensor in leaves.tensors]
    with Drawing(numbers):
        return leaves, tensors, leaves(*leaves.tensors)


class Trials:
    """Executes the problem for real at small sizes, and compares with our evaluation of its graph."""

    def __init__(self, problem: Problem, made: Recorded, symbolic: Symbolic, graph: Graph, scale: float = 1.0) -> None:
        self.problem, self.made, self.symbolic, self.graph = problem, made, symbolic, graph
        self.scale = scale
        """Factor of the numbers that the source draws."""
        self.leaves_range = False
        """Whether most results of some shape are not finite in the source's type, and are in fp64."""
        self.guards, self.used = symbolic.guards(), symbolic.used()
        self.shown: dict[str, tuple[str, float, float, str]] = {}
        self.differences: list[str] = []
        self.constant: list[bool] = []
        self.base = {made.dims[name]: problem.sizes[name] for name in made.dims}
        self.least, self.most_work = float(MOST_ELEMENTS), float(MOST_WORK)
        self.is_heavy = False
        """Whether even its smallest sizes are above these."""
        self.is_slow = False
        """Whether plain loops on a CPU take longer for its smallest sizes than a verdict waits."""

    def values(self, dims: Mapping[str, int]) -> dict[Any, int]:
        """Sizes by symbol; one that no tensor comes from keeps the source's."""
        used, own = self.used, self.problem.sizes
        return {s: dims[self.made.dims[n]] if n in self.made.dims else own[n] for s, n in used.items()}

    def sizes(self, dims: Mapping[str, int]) -> dict[str, int]:
        """All knobs for these dims: what is unified with a dim goes with it, all else stays."""
        values = self.values(dims)
        sizes = dict(self.problem.sizes)
        for name, symbol in self.symbolic.symbols.items():
            expr = sympy.sympify(self.symbolic.expr(symbol))
            sizes[name] = int(expr.subs(values))
        return sizes

    def given(self, dims: Mapping[str, int], *, seed: int = 0) -> dict[str, torch.Tensor]:
        """The graph's inputs, as the source makes them for these dims; it runs the source."""
        leaves, tensors, _, numbers = self.executed(dims, seed)
        return self.made.values(leaves, tensors, numbers)

    def executed(
        self, dims: Mapping[str, int], seed: int
    ) -> tuple[Leaves, list[torch.Tensor], Any, dict[str, torch.Tensor]]:
        """The source executed for real: its leaves, its tensors, what it computes, and the random numbers it drew."""
        values, known = self.values(dims), dict[Any, Any]()
        ranges = {
            n: (int(at(low, values, known)), int(at(high, values, known)))
            for n, (low, high) in self.made.ranges.items()
        }
        numbers = self.made.drawn(dims, seed)
        by_rows = bool(self.symbolic.rows)
        given = [(law, numbers[name][0] if by_rows else numbers[name]) for name, (law, *_) in self.made.numbers.items()]
        drawn = RandomNumbers(given, alike=by_rows)
        return *real(self.problem, self.sizes(dims), seed, self.scale, ranges, drawn), numbers

    def allows(self, dims: Mapping[str, int], *, large: bool = False) -> bool:
        """Whether the guards hold there, and it is not too large to be tried."""
        values, known = self.values(dims), dict[Any, Any]()
        try:
            if not all(bool(at(guard, values, known)) for guard in self.guards):
                return False
            if any(size.free_symbols and int(at(size, values, known)) < 1 for size in self.made.sizes):
                return False
            return large or (self.elements(dims) <= self.least and self.work(dims) <= self.most_work)
        except (TypeError, ValueError, ZeroDivisionError):
            return False

    def refusal(self) -> str:
        """Why no smaller size is tried: the condition that fails at the source's own sizes, or how large these are."""
        values, known, here = self.values(self.base), dict[Any, Any](), _at(self.base)
        try:
            for guard in self.guards:
                if not bool(at(guard, values, known)):
                    return f"no size fits its conditions: {str(guard)[:160]} does not hold at {here}"
            numbers, work = self.elements(self.base), self.work(self.base)
            return (
                f"no size that is small enough fits its conditions: at {here} it has {numbers:.3g} numbers, {work:.3g} "
                f"operations, and at most {self.least:.3g} and {self.most_work:.3g} are tried"
            )
        except (TypeError, ValueError, ZeroDivisionError) as error:
            return f"no size fits its conditions: they cannot be told at {here} ({str(error)[:160]})"

    def elements(self, dims: Mapping[str, int]) -> int:
        """Elements of all values."""
        values, known = self.values(dims), dict[Any, Any]()
        return sum(int(at(count, values, known)) for count in self.made.counts)

    def results(self, leaves: Leaves, result: Any) -> list[torch.Tensor]:
        """The tensors among what a problem returns, and its arguments that are results too."""
        returned = [leaf for leaf in pytree.tree_leaves(result) if isinstance(leaf, torch.Tensor)]
        return returned + [leaves.tensors[leaves.names.index(name)] for name in self.made.changed]

    def passes(self, dims: Mapping[str, int]) -> bool:
        """Whether source and graph agree there; what its tensors look like is kept."""
        try:
            with foreign(REAL_S):
                leaves, tensors, result, numbers = self.executed(dims, 0)
                values, env = self.made.values(leaves, tensors, numbers), self.made.environment(dims)
                if self.problem.is_pure and not all(map(torch.equal, leaves.tensors, tensors)):
                    raise Failed("it changes its arguments in place, which a kernel in its place would not")
                ours = evaluate(self.graph, values, env)
                theirs = self.results(leaves, result)
                with torch.no_grad():
                    other, _, once_more, _ = self.executed(dims, 1)
                    again = self.results(other, once_more)
        except Failed as error:
            self.differences.append(f"{_at(dims)}: {str(error)[:160]}")
            return False
        if len(ours) != len(theirs):
            self.differences.append(f"{_at(dims)}: {len(theirs)} results, not {len(ours)}")
            return False
        for (name, mine), their in zip(ours.items(), theirs, strict=True):
            if mine.is_floating_point() and bool(mine.isinf().any()) and self._masks():
                self.made.infinite.add(name)
            if not self.sound(name, mine):
                self.differences.append(f"{_at(dims)}: its `{name}` is not finite, so that no error bound holds for it")
                return False
            if tuple(mine.shape) != tuple(their.shape) or not close(mine, their, short=self.made.is_short):
                reason = self._difference(name, values, env, mine, their)
                if reason:
                    self.differences.append(f"{_at(dims)}: {reason}")
                    return False
        self.constant.append(
            all(torch.equal(a.nan_to_num(), b.nan_to_num()) for a, b in zip(theirs, again, strict=True))
        )
        for name, tensor in zip(leaves.names, tensors, strict=True):
            if tensor.numel() >= self.shown_numel(name):
                self.shown[name] = observed(tensor)
                self._numel[name] = tensor.numel()
        return True

    def _difference(
        self,
        name: str,
        values: Mapping[str, torch.Tensor],
        env: Mapping[str, int],
        mine: torch.Tensor,
        their: torch.Tensor,
    ) -> str:
        """Why a result is another than the source's: in its own type the graph may well compute the same. Nothing where
        few numbers leave that type's range."""
        if their.is_floating_point():
            again = evaluate(self.graph, values, env, their.dtype)[name]
            if tuple(again.shape) == tuple(their.shape) and close(again, their, short=self.made.is_short):
                held = their.isfinite()
                lost = float((mine.isfinite() & ~held).double().mean())
                if lost > MOST_LOST:
                    self.leaves_range = True
                    return f"with what the source draws, most numbers of its `{name}` leave the range of its type"
                if not lost or not close(mine[held], their[held], short=self.made.is_short):
                    return f"rounding decides its `{name}`, which differs from the same in fp64"
                return ""
        return f"the graph computes another `{name}` than the source"

    def sound(self, name: str, y: torch.Tensor) -> bool:
        """Whether a result has numbers that a bound holds for: finite ones, or those of a mask."""
        return not bool(y.isnan().any()) if name in self.made.infinite else bool(y.isfinite().all())

    def _masks(self) -> bool:
        """Whether the source itself has infinite numbers."""
        return any('["inf"]' in text or '["-inf"]' in text for text in (json.dumps(n.args) for n in self.graph.nodes))

    def shown_numel(self, name: str) -> int:
        """Elements of the largest tensor of the name that was looked at."""
        self._numel = getattr(self, "_numel", {})
        return int(self._numel.get(name, 0))

    def hidden(self) -> list[dict[str, Any]]:
        """Shapes of every kind at which source and graph agree."""
        lowest = self.lowest()
        self._raise_limit(lowest)
        found = self._confirmed(lowest)
        if not found and any("rounding decides" in line for line in self.differences):
            # Small images leave a deep network's norms two numbers each, whose signs are chance.
            self.is_heavy, self.least, self.most_work = True, MOST_HEAVY, max(self.most_work, MOST_QUICK_WORK)
            found = self._confirmed(lowest)
        return found

    def _confirmed(self, lowest: Mapping[str, int]) -> list[dict[str, Any]]:
        rng, found, seen = random.Random(0), [], set()
        for kind, (wanted, pool) in KINDS.items():
            kept = tries = 0
            wanted = 1 if self.is_heavy else wanted
            for number in range(400):
                if kept == wanted or tries == 3 * wanted:
                    break
                dims = {dim: self._size(rng, dim, pool, lowest[dim], strict=number == 0) for dim in self.base}
                key = tuple(dims.values())
                if key in seen or not self.allows(dims):
                    continue
                seen.add(key)
                tries += 1
                if self.passes(dims):
                    kept += 1
                    found.append({"source": kind, "dims": dims})
        return found

    def _size(self, rng: random.Random, dim: str, pool: tuple[int, ...], lowest: int, *, strict: bool) -> int:
        """A size of a kind; now and then another one, unless it is `strict`, as conditions may tie dims together."""
        base = self.base[dim]
        if strict or rng.random() < 0.75:
            size = rng.choice(pool)
            step = 2 * (size & -size)  # what is this much larger is even as often
            return size + max(0, -((size - lowest) // step)) * step
        return max(lowest, rng.choice((base, base >> 1, base >> 2, base >> 3, base >> 4, base >> 5, base * 2)))

    def lowest(self) -> dict[str, int]:
        """The smallest sizes that its conditions allow: the largest halved again and again, and then each lowered."""
        *_, dims = self._halved()
        for dim in dims:
            # Conditions may ask for multiples, which a bisection would miss.
            tried = (size for size in (*range(1, 33), *range(40, 257, 8)) if size < dims[dim])
            found = next((size for size in tried if self.allows(dims | {dim: size}, large=True)), None)
            least = found or 1
            while not found and least < dims[dim]:
                middle = (least + dims[dim]) // 2
                if self.allows(dims | {dim: middle}, large=True):
                    dims = dims | {dim: middle}
                else:
                    least = middle + 1
            dims = dims | {dim: found or dims[dim]}
        return dims

    def _raise_limit(self, lowest: Mapping[str, int]) -> None:
        """A problem whose constants are large cannot be tried small; it is tried as small as it can be, and less."""
        try:
            least, work = self.elements(lowest), self.work(lowest)
        except (TypeError, ValueError, ZeroDivisionError):  # half of one is no size
            return
        self.is_heavy = least > self.least or work > self.most_work
        self.least = max(self.least, min(3 * least, MOST_HEAVY))
        self.most_work = max(self.most_work, 3 * work)

    def smaller(self) -> dict[str, int] | None:
        """Sizes like the problem's own that a CPU computes in little time."""
        fitting = (d for d in self._halved() if self.work(d) <= 3e7 and self.allows(d) and self.passes(d))
        return next(fitting, None)

    def follows(self, sizes: Mapping[str, int]) -> bool:
        """Whether the graph computes a workload of these sizes: a recorded one may depart from its conditions."""
        dims = {dim: sizes[knob] for knob, dim in self.made.dims.items()}
        if not self.problem.is_pure or (self.allows(dims, large=True) and self.sizes(dims) == sizes):
            return True
        self.made.notes.append(f"left out, as it computes otherwise there: {_at(sizes)}")
        return False

    def quick(self) -> list[dict[str, int]]:
        """Recorded sizes that a CPU computes in some time."""
        found = [{dim: sizes[knob] for knob, dim in self.made.dims.items()} for sizes in self.problem.workloads]
        fitting = [dims for dims in found if self.allows(dims, large=True) and self.work(dims) <= MOST_QUICK_WORK]
        return [dims for dims in fitting if self.elements(dims) <= MOST_QUICK]

    def small(self) -> dict[str, int] | None:
        """Sizes like the problem's own whose values, the reference's in fp64 included, fit a card of 24 GB."""
        return next((dims for dims in self._halved() if self.elements(dims) <= MOST_SMALL), None)

    def _halved(self) -> Iterator[dict[str, int]]:
        """The problem's own sizes, and ever smaller ones that its conditions allow: the largest is halved."""
        dims = dict(self.base)
        for _ in range(200):
            yield dims
            order = sorted((dim for dim in dims if dims[dim] > 1), key=lambda dim: -dims[dim])
            lower = (dims | {dim: max(1, dims[dim] // 2)} for dim in order)
            found = next((each for each in lower if self.allows(each, large=True)), None)
            if found is None:
                return
            dims = found

    def bound(self, dims: Mapping[str, int]) -> str:
        """`running` where error analysis bounds errors well, `sampled` where it is too wide, and `measured` where it
        does not know an operator. The analysis of a recurrence is as wide as it has steps."""
        if any(node.op in RECURRENCES for node in self.graph.nodes):
            return "sampled"
        try:
            with foreign(REAL_S), torch.no_grad():
                values = self.given(dims, seed=2)
                names, env = list(values), self.made.environment(dims)

                def reference(*given: torch.Tensor) -> dict[str, torch.Tensor]:
                    return evaluate(self.graph, dict(zip(names, given, strict=True)), env)

                doubles = list(self._varied(values).values())
                outputs, sizes = reference(*doubles), running(reference, "fp32")(*doubles)
        except Failed as error:
            self.made.notes.append(f"errors are measured: {str(error)[:160]}")
            return "measured"
        floating = {name: y for name, y in outputs.items() if y.is_floating_point() and y.numel()}
        medians = {name: float(sizes[name].median()) for name in floating}
        if all(medians[name] <= WIDEST * (float(y.abs().max()) or 1.0) for name, y in floating.items()):
            return "running"
        if any(median > NO_BOUND for median in medians.values()):  # samples may not tell more
            with suppress(Failed), foreign(REAL_S):
                sizes = sampled(reference, "fp32")(*doubles)
                medians = {name: float(sizes[name].median()) for name in floating}
            if any(median > NO_BOUND for median in medians.values()):
                self.made.notes.append("errors are measured, as neither their analysis nor samples bound them")
                return "measured"
        self.made.notes.append("errors are bounded by samples, as their analysis is too wide")
        return "sampled"

    def telling(self, dims: Mapping[str, int]) -> float:
        """A spread of inputs that results depend on. It raises Failed where there is none."""
        for scale in (8.0, 64.0):
            with foreign(REAL_S), torch.no_grad():
                values, found = self.given(dims), []
                for _ in range(2):
                    free = {n for n, v in values.items() if v.is_floating_point() and n not in self.made.numbers}
                    drawn = {n: v.normal_(0, scale) if n in free else v for n, v in values.items()}
                    found.append(evaluate(self.graph, drawn, self.made.environment(dims)))
            if any(not torch.equal(y.nan_to_num(), found[1][name].nan_to_num()) for name, y in found[0].items()):
                return scale
        raise Failed("its results do not depend on its inputs, so that every wrong kernel would pass: it is no task")

    def fragile(self, shapes: Sequence[Mapping[str, int]], *kinds: Sequence[Change]) -> list[set[str]]:
        """By kind of changes, the inputs that may not be changed so: results are not finite then, at one of these
        shapes."""
        found: list[set[str]] = [set() for _ in kinds]
        for dims in shapes:
            with foreign(REAL_S), torch.no_grad():
                values = {n: v.double() if v.is_floating_point() else v for n, v in self.given(dims).items()}
                for names, changes in zip(found, kinds, strict=True):
                    for change in changes:
                        names |= self._fragile(values, self.made.environment(dims), change)
        return found

    def _fragile(self, values: Mapping[str, torch.Tensor], env: Mapping[str, int], change: Change) -> set[str]:
        kept = self.made.sourced | self.made.numbers.keys()
        floating = [name for name, value in values.items() if value.is_floating_point() and name not in kept]

        def finite(names: Sequence[str]) -> bool:
            drawn = {name: change(v) if name in names else v for name, v in values.items()}
            try:  # a place that is computed may be none in fp32
                evaluate(self.graph, drawn, env, torch.float32)
                return all(self.sound(*found) for found in evaluate(self.graph, drawn, env).items())
            except OperatorError:
                return False

        if finite(floating) or not finite([]):
            return set()
        one_by_one = floating if len(floating) <= MOST_TRIED else []
        return {name for name in one_by_one if not finite([name])} or set(floating)

    def bears(self, making: Making, dims: Mapping[str, int]) -> bool:
        """Whether results are finite where some inputs are made anew as the source makes them."""
        env, rng, cpu = self.made.environment(dims), np.random.default_rng(0), torch.device("cpu")
        with foreign(REAL_S), torch.no_grad():
            values = self.given(dims)
            for family in (NOMINAL, "other"):
                again = made_inputs(making, env, rng, cpu, family, DTYPES["fp32"])
                if any(again[name].shape != values[name].shape for name in again):
                    return False
                results = evaluate(self.graph, values | again, env)
                if family == NOMINAL and not all(self.sound(*found) for found in results.items()):
                    return False
        return True

    def keeps_patterns(self, making: Making, shapes: Sequence[Mapping[str, int]]) -> bool:
        """Whether these are symmetric or triangular matrices, and not positive definite ones, so that every family of
        inputs may be drawn for them."""
        patterns = {self.made.tensor_names.get(name): shown[3] for name, shown in self.shown.items()}
        if not all(patterns.get(name) for name in making.types):
            return False
        symmetric = [name for name in making.types if patterns[name] == "symmetric"]
        with foreign(REAL_S), torch.no_grad():
            for dims in shapes[:MOST_DEGENERATE]:
                values = self.given(dims)
                if any(bool((torch.linalg.eigvalsh(values[name].double()) <= 0).any()) for name in symmetric):
                    return True
        return not symmetric

    def faint(self, shapes: Sequence[Mapping[str, int]], described: Sequence[Mapping[str, Any]]) -> list[Level]:
        """The levels of inputs at which small constants of the graph decide results."""
        ordered = sorted(shapes, key=self.elements)
        floating = [each for each in described if is_free(each)]
        near = [each for each in floating if near_zero(each)]
        free = [each for each in near if "normal" in each["distribution"] and not each.get("bounded")]
        small = self._levels(levels, ordered[len(ordered) // 2], near)
        tried = ordered[:MOST_DEGENERATE] if not small and len(free) <= MOST_TRIED else []
        # Few elements of each sum, of which some may have no term at all.
        large = (self._levels(leaning, dims, free) for dims in tried)
        return small or next((found for found in large if found), [])

    def _levels(self, find: Any, dims: Mapping[str, int], inputs: Sequence[Mapping[str, Any]]) -> list[Level]:
        """The levels that are found for these dims; none where it takes too long."""
        try:
            with foreign(FAINT_S), torch.no_grad():
                values, names = self._varied(self.given(dims)), [each["name"] for each in inputs]
                found: list[Level] = find(self.graph, values, self.made.environment(dims), names)
                return found
        except Failed:  # a family less
            return []

    def _varied(self, values: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """The values in fp64, as fp32 has them, where the source has one number everywhere, or numbers
        of 16 bits, of which many are equal."""
        found = dict(values)
        for name, value in values.items():
            if value.is_floating_point() and name not in self.made.numbers:
                more = torch.rand(value.shape, dtype=torch.float64) * torch.finfo(value.dtype).eps
                found[name] = varied(value.double() * (1 + more) if value.dtype in SHORT else value.double())
        return found

    def work(self, dims: Mapping[str, int]) -> float:
        """Operations of a plain algorithm, and what steps of time count as."""
        values, known = self.values(dims), dict[Any, Any]()
        operations, steps = (
            sum(int(at(n, values, known)) for n in each) for each in (self.made.flops, self.made.steps)
        )
        return float(operations + STEP_WORK * steps)


def close(mine: torch.Tensor, theirs: torch.Tensor, *, short: bool = False) -> bool:
    """Whether our fp64 result is what the source computes, but for rounding; `short`: to 16 bits on the way."""
    if not theirs.is_floating_point():
        return bool((mine == theirs).double().mean() > 0.99) if theirs.numel() else True
    short = short or theirs.dtype in SHORT
    theirs = theirs.double()
    finite = theirs.isfinite()
    if not bool((mine.isfinite() == finite).all()):
        return False
    scale = float(theirs[finite].abs().max()) if bool(finite.any()) else 0.0
    off = (mine.double() - theirs)[finite].abs()
    return not off.numel() or float(off.max()) <= (5e-2 if short else 2e-3) * scale + 1e-5


def _at(dims: Mapping[str, int]) -> str:
    return ",".join(f"{name}={value}" for name, value in dims.items()) or "its sizes"


# --- all of it --------------------------------------------------------------------------------------------------------


def look(problem: Problem) -> dict[str, Any]:
    """The description of a problem. Raises Failed."""
    try:
        return described(problem, traced(problem))
    except Untraced as error:
        if not isinstance(error.__cause__, Unrolled):
            raise
        reason = error
    for rows in sorted(problem.rows):
        try:
            return described(problem.by_rows(rows), attempts(problem, rows))
        except Failed:  # each row hangs on others, or there is no rule for something
            pass
    if not problem.chosen:
        raise reason
    problem = problem.smallest()
    return described(problem, traced(problem))


def traced(problem: Problem) -> Symbolic:
    """The problem as it was recorded. Raises Untraced."""
    try:
        return attempts(problem)
    except Failed as error:
        raise Untraced(str(error)) from error


def described(problem: Problem, symbolic: Symbolic) -> dict[str, Any]:
    """The description of a problem that was recorded. Raises Failed."""
    try:
        made = Recorded(symbolic, problem)
    except Unwritable as error:
        return described(problem, again(problem, symbolic, error))
    except ValueError as error:
        raise Untraced(str(error)) from None
    if problem.is_pure and made.numbers:
        raise Failed("it draws random numbers, so that no call of it tells whether a kernel in its place is right")
    graph = checked(made.graph)
    try:
        scale, trials, hidden, cpu = in_range(problem, made, symbolic, graph)
    except Failed:
        if not made.ranges:
            raise
        made.notes += [f"`{name}` holds zeros and ones, as its use does not tell its range" for name in made.ranges]
        made.ranges.clear()
        scale, trials, hidden, cpu = in_range(problem, made, symbolic, graph)
    from_one(made, trials, cpu)
    making = sourced(problem, made, symbolic, trials, [cpu, *(shape["dims"] for shape in hidden)])
    tensors = inputs_of(made, symbolic, trials, scale, cpu, hidden)
    return {
        "making": making,
        "faint": trials.faint([shape["dims"] for shape in hidden], tensors),
        "graph": made.graph,
        "derived": made.derived,
        "dims": trials.base,
        "hidden": hidden,
        "cpu": cpu,
        "quick": trials.quick() if problem.is_pure else [],
        "small": trials.small() or cpu,
        "inputs": tensors,
        "returned": made.returned,
        "flops": written(made, made.flops, trials),
        "bytes": made.bytes() if len(tensors_bytes(tensors)) > MAX_CHARACTERS else "",
        "terms": next(iter(written(made, made.terms, trials)), "1"),
        "dtype": made.dtype,
        "workloads": [made.workload(symbolic, sizes) if trials.follows(sizes) else {} for sizes in problem.workloads],
        "bound": trials.bound(cpu),
        "notes": [*made.notes, *problem.notes],
        "differences": trials.differences[:3],
        "is_slow": trials.is_slow,
    }


def sourced(
    problem: Problem, made: Recorded, symbolic: Symbolic, trials: Trials, shapes: Sequence[Mapping[str, int]]
) -> dict[str, Any]:
    """The making of inputs whose elements depend on each other, where the graph has finite results with these."""
    raw = made_by_source(problem, symbolic, made)
    try:
        making = making_of(raw, "inputs") if raw else None
        if making and not trials.keeps_patterns(making, shapes) and all(trials.bears(making, d) for d in shapes):
            listed = ", ".join(f"`{name}`" for name in making.types)
            made.notes.append(f"made as the source makes them, of random numbers: {listed}")
            return raw
    except (Failed, OperatorError):  # drawn from what they look like
        pass
    made.sourced.clear()
    return {}


def inputs_of(
    made: Recorded,
    symbolic: Symbolic,
    trials: Trials,
    scale: float,
    cpu: Mapping[str, int],
    hidden: Sequence[Mapping[str, Any]],
) -> list[dict[str, Any]]:
    """The descriptions of all tensors: inputs are drawn so that a right kernel can be told from a wrong one."""
    seen = {made.tensor_names.get(name, name): shown for name, shown in trials.shown.items()}
    described = made.described(symbolic, seen)
    if scale != 1:
        for each in described:
            each |= shrunk(each, scale) if is_free(each) else {}
        made.notes.append(
            f"numbers are drawn {1 / scale:g} times smaller than in the source, with whose own most results leave the "
            "range of their type"
        )
    if all(trials.constant):
        law = f"normal(0, {trials.telling(cpu):g})"
        for each in described:
            if is_free(each) and each["name"] not in made.sourced:
                each["distribution"] = law
        made.notes.append(f"the source's own inputs all give one result: numbers are drawn from {law} here")
    smallest = sorted((shape["dims"] for shape in hidden), key=trials.elements)
    shapes = [cpu, *smallest[: 1 if trials.is_heavy else MOST_DEGENERATE]]
    kept = made.sourced | made.numbers.keys()
    drawn = [each for each in described if each["role"] == "in" and each["name"] not in kept]
    drawn_otherwise(made, trials, drawn, shapes)
    return described


def is_free(tensor: Mapping[str, Any]) -> bool:
    """Whether a tensor of operator.toml is an input whose numbers may be drawn by another law."""
    return tensor["role"] == "in" and tensor["dtype"] in FLOATING and tensor["origin"] != RANDOM


def drawn_otherwise(
    made: Recorded, trials: Trials, inputs: list[dict[str, Any]], shapes: Sequence[Mapping[str, int]]
) -> None:
    """Keep zeros and large numbers from the inputs with which results are not finite where they are drawn.

    Where an axis is short, whole rows of what a verdict draws may be zero.
    """
    zeros, large = trials.fragile(
        shapes, [lambda x: x * (torch.rand(x.shape) < 0.8), lambda x: x * (torch.rand(x.shape) < 0.1)],
        [lambda x: x * LARGE],
    )  # fmt: skip
    for each in inputs:
        if each["name"] in large:
            each["bounded"] = True
            if normal := re.fullmatch(r"normal\((.+), (.+)\)", each.get("distribution", "")):
                mean, deviation = map(float, normal.groups())
                each["distribution"] = f"uniform({mean - 2 * deviation:.6g}, {mean + 2 * deviation:.6g})"
            made.notes.append(f"`{each['name']}` keeps to its range, beyond which there are no finite results")
        if each["name"] in zeros:
            each["specials"] = []
            made.notes.append(f"`{each['name']}` holds no zeros, with which results are not finite")
            above = re.fullmatch(r"uniform\(0, (.+)\)", each.get("distribution", ""))
            if above:
                each["distribution"] = f"uniform({float(above[1]) / 64:.6g}, {above[1]})"


def from_one(made: Recorded, trials: Trials, dims: Mapping[str, int]) -> None:
    """Draw integers from the second of their range where results of the first alone are not finite, as a mean of no
    elements is."""
    with foreign(REAL_S), torch.no_grad():
        values, env = trials.given(dims), made.environment(dims)
        sizes, known = trials.values(dims), dict[Any, Any]()
        for name, (low, high) in list(made.ranges.items()):
            mine, least = made.tensor_names.get(name), int(at(low, sizes, known))

            def is_sound(number: int, mine: Any = mine) -> bool:
                try:
                    results = evaluate(trials.graph, values | {mine: torch.full_like(values[mine], number)}, env)
                except OperatorError:
                    return False
                return all(trials.sound(*each) for each in results.items())

            if mine in values and not is_sound(least) and is_sound(least + 1):
                made.ranges[name] = (low + 1, high)
                made.notes.append(f"`{mine}` is at least {least + 1}, as results of {least} are not finite")


def in_range(
    problem: Problem, made: Recorded, symbolic: Symbolic, graph: Graph
) -> tuple[float, Trials, list[dict[str, Any]], dict[str, int]]:
    """The scale at which the source's numbers give results in their type's range, the trials with these, the hidden
    shapes on which graph and source agree, and sizes for a CPU. Raises Failed where there is no such scale or shape."""
    for scale in SCALES:
        trials = Trials(problem, made, symbolic, graph, scale)
        hidden, cpu = trials.hidden(), trials.smaller()
        if not trials.leaves_range:
            break
    else:
        raise Failed(
            f"with what it draws, and with numbers {1 / scale:g} times smaller, most of its results leave the range of "
            "their type: it could not tell a right kernel from a wrong one"
        )
    if not hidden:
        reason = (
            min(trials.differences, key=lambda line: "rounding decides" not in line, default="") or trials.refusal()
        )
        raise Failed(f"its graph cannot be confirmed against its source: {reason}")
    least = min(trials.work(shape["dims"]) for shape in hidden)
    trials.is_slow = least > MOST_QUICK_WORK
    if trials.is_slow:
        made.notes.append(
            f"its smallest sizes take {least:.2g} operations: plain loops on a CPU take longer for them than a verdict "
            "waits, so that its first kernel can be judged on a GPU only"
        )
    return scale, trials, hidden, cpu or hidden[-1]["dims"]


def written(made: Recorded, counts: list[Any], trials: Trials) -> list[str]:
    """Different expressions, the largest at the problem's own sizes first."""
    values = trials.values(trials.base)
    known = {sympy.sympify(count) for count in counts} - {0}
    ordered = sorted(known, key=lambda count: (-int(count.subs(values)), str(count)))
    times = {count: sum(1 for each in counts if sympy.sympify(each) == count) for count in ordered}
    return [made.text(count * times[count]) if counts is made.flops else made.text(count) for count in ordered[:8]]


def tried(request: Mapping[str, Any]) -> dict[str, Any]:
    """The description of a problem, or why there is none."""
    try:
        with foreign(LOOK_S):
            return look(problem_of(request))
    except Untraced as error:
        return {"failed": str(error), "untraced": True}
    except Failed as error:
        return {"failed": str(error)}


def defined(request: Mapping[str, Any]) -> dict[str, Any]:
    """The same of a definition with axes. What its source repeats of its constant axes is constant, as solutions are
    written for these sizes; where that is no task, or one that takes too long to judge, it varies with them."""
    constants = {name: request["sizes"][name] for name in request["constants"]}
    held = [each["shape"] or () for each in request["inputs"].values()]
    least = sum(math.prod(constants.get(axis, 1) for axis in shape) for shape in held)
    literal = {**request, "is_literal": True}
    found = None if least > MOST_CONSTANTS else tried(literal)
    if found and "failed" not in found and not found["is_slow"]:
        return found
    again = tried(request)
    if "failed" in again:  # a number of the source may be the size of an axis by chance
        return found or tried(literal)
    again["notes"].append(
        "sizes that its source repeats vary, as the definition's own could not be judged, or not in time"
    )
    return again


def with_finite_results(request: Mapping[str, Any]) -> tuple[Mapping[str, Any], list[str]]:
    """A definition with positive numbers, or rows of shares, for inputs whose normal numbers give results that are not
    finite, and the names of these; itself where no such law mends that, or where it takes long to tell."""
    inputs = request["inputs"]
    free = [
        name for name, each in inputs.items()
        if each["shape"] and "float" in each["dtype"] and not each.get("custom") and not each.get("shares")
    ]  # fmt: skip
    if not free or _is_finite(request):
        return request, []
    for law in ("positive", "shares"):
        for names in (*([name] for name in free[:MOST_TRIED]), free):
            other = {**request, "inputs": {n: each | {law: True} if n in names else each for n, each in inputs.items()}}
            if _is_finite(other):
                return other, names
    return request, []


def _is_finite(request: Mapping[str, Any]) -> bool:
    """Whether results of a definition are numbers with all of some draws of few rows, at its own constants and at
    smaller ones; what cannot be told is not denied."""
    problem = problem_of(request)
    few = {name: min(size, FEW_ROWS) for name, size in problem.sizes.items()}
    until = time.monotonic() + FINITE_S
    for sizes in (few | {name: problem.sizes[name] for name in problem.inner}, few):
        for seed in range(FINITE_DRAWS):
            if time.monotonic() > until:
                return True
            torch.manual_seed(seed)
            try:
                with foreign(FINITE_S), torch.no_grad():
                    leaves = Leaves(*problem.made(sizes.__getitem__))
                    results = pytree.tree_leaves(leaves(*leaves.tensors))
            except Failed:
                break
            if any(bool(y.isnan().any()) for y in results if isinstance(y, torch.Tensor)):
                return False
    return True


def looked_at(request: Mapping[str, Any]) -> dict[str, Any]:
    """The description of a problem: by its graph, or, where none says what it computes, by its executions."""
    if request["kind"] != "axes":
        return judged(request)
    request, names = with_finite_results(request)
    found = judged(request)
    if names and "notes" in found:
        listed = ", ".join(f"`{name}`" for name in names)
        found["notes"].append(f"drawn from positive numbers, as results of normal ones are not finite: {listed}")
    return found


def judged(request: Mapping[str, Any]) -> dict[str, Any]:
    """The same, of a request whose draws are known."""
    if request.get("offsets"):
        reason = f"the rows of its loop lie between offsets ({', '.join(request['offsets'])})"
    else:
        found = (defined if request["kind"] == "axes" else tried)(request)
        if re.search(r"out of (bounds|range)", found.get("failed", "")):
            found = tried({**request, "tied": True})
        if "untraced" not in found:
            return found
        reason = found["failed"]
    try:
        with foreign(EXECUTE_S):
            return executed(request, reason)
    except Failed as error:
        return {"failed": str(error) if request.get("offsets") else reason}


def main() -> None:
    """Read the request in this folder, and write the result there."""
    warnings.simplefilter("ignore")
    sys.path.insert(0, ".")
    torch.set_num_threads(1)
    request = json.loads(Path("request.json").read_text(encoding="utf-8"))
    prepare_torch()
    Path("result.json").write_text(json.dumps(looked_at(request)), encoding="utf-8")


if __name__ == "__main__":
    main()
