"""A foreign source that no graph can say, executed as it is: its description by trial, and its results for a verdict.

`python -m operators.importing.executing SOCKET` answers the questions of a verdict in a jail, beside `request.json`.
"""

from __future__ import annotations

import json
import math
import random
import socket
import sys
import time
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch.utils import _pytree as pytree

from operators.dtypes import DTYPES
from operators.expression import parse
from operators.importing.arguments import DTYPES as TYPES
from operators.importing.draws import Draws, found_rules, observed, same
from operators.importing.foreign import Failed, foreign
from operators.importing.graphs.mode import DispatchMode
from operators.importing.problems import KINDS, problem_of
from operators.importing.substitutes import prepare_torch
from operators.importing.tracing import NAMES, REAL_S, Leaves, free_name, structure

Sizes = Mapping[str, int]
SMALL = tuple(range(2, 30))
"""Sizes at which a source is first executed."""
TRIES = 40
MOST_ELEMENTS = 30_000_000
"""Elements of inputs and results at a hidden shape."""
MOST_WORKLOAD = 400_000_000
"""The same of a workload: they go to the source's process and back."""
MOST_CPU = 4_000_000
"""The same of the workload set `cpu`."""
HIDDEN_S = 100
"""Seconds in which hidden shapes are tried."""
STEPS = (1, 2, 4, 8)
"""Changes of a size that tell which axes follow it."""


class OneType(DispatchMode):  # type: ignore[no-untyped-call]
    """Has a source compute in one floating type, whichever it converts numbers to."""

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.dtype = dtype

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Call the operator with this type in the place of others."""

        def mine(value: Any) -> Any:
            is_other = isinstance(value, torch.dtype) and value.is_floating_point
            return self.dtype if is_other else value

        return func(*pytree.tree_map(mine, args), **pytree.tree_map(mine, dict(kwargs or {})))


@contextmanager
def in_one_type(dtype: torch.dtype) -> Iterator[None]:
    """Have all numbers made and converted in this type."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        with OneType(dtype), torch.no_grad():
            yield
    finally:
        torch.set_default_dtype(before)


class RunningSource:
    """A problem executed with real tensors, at sizes under our control."""

    def __init__(self, request: Mapping[str, Any], changed: Sequence[str] = ()) -> None:
        self.problem = problem_of(request)
        self.changed = list(changed)
        """Arguments that are results too, after what it returns."""

    def leaves(self, sizes: Sizes, seed: int) -> Leaves:
        """The call and its arguments, as the source or its definition makes them."""
        torch.manual_seed(seed)
        random.seed(seed)
        every = {**self.problem.sizes, **sizes}
        return Leaves(*self.problem.made(lambda name: every[name]))

    def returned(self, leaves: Leaves, tensors: Sequence[torch.Tensor]) -> tuple[Any, list[torch.Tensor]]:
        """The source's return value in fp64, or in the type of these tensors, and the tensors as it leaves them."""
        given = [tensor.detach().clone() for tensor in tensors]
        floating = [each.dtype for each in given if each.is_floating_point()]
        with in_one_type(floating[0] if floating else torch.float64):
            return leaves(*given), given

    def results(self, leaves: Leaves, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """All results, in their order."""
        found, given = self.returned(leaves, tensors)
        after = dict(zip(leaves.names, given, strict=True))
        listed = [leaf for leaf in pytree.tree_leaves(found) if isinstance(leaf, torch.Tensor)]
        return listed + [after[name] for name in self.changed]


def doubled(tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """The tensors with floating numbers in fp64."""
    return [each.double() if each.is_floating_point() else each for each in tensors]


# --- description ------------------------------------------------------------------------------------------------------


class SourceTrial:
    """A description from executions at several sizes. It raises Failed for what is no task."""

    def __init__(self, request: Mapping[str, Any]) -> None:
        self.request = dict(request)
        self.notes: list[str] = []
        if request["kind"] == "axes":
            self.request["rules"] = self._offsets()
        self.run = RunningSource(self.request)
        problem = self.run.problem
        self.variable = [name for name in problem.sizes if name not in problem.inner]
        self.taken: set[str] = set()
        self.dims = {name: free_name(name, self.taken) for name in self.variable}
        """Dims by knob."""
        self.base = self._first()
        if request["kind"] == "axes":
            self._ranges()
            scalars = {name: each["value"] for name, each in request["inputs"].items() if each["shape"] is None}
            self.notes += [
                f"`{name}` is {value:.9g} in all calls" for name, value in scalars.items() if value is not None
            ]
        self.infinite: set[int] = set()
        """Results that may be infinite, by their numbers."""
        self.varies = self.draws = False
        """Whether results hang on inputs, and on random numbers that it draws, at any shape."""
        self._outputs()
        self.shapes = self._shapes()

    def _offsets(self) -> dict[str, Any]:
        told = self.request.get("offsets", {})
        return {name: ("offsets", [axis]) for name, axis in told.items()}

    def _first(self) -> dict[str, int]:
        """Small sizes, all of them others, at which the source runs; or its own."""
        rng, reason, kept = random.Random(0), "", set(self.run.problem.sizes.values())
        pool = [size for size in SMALL if size not in kept]
        smaller = (
            [dict(zip(self.variable, rng.sample(pool, len(self.variable)), strict=True)) for _ in range(TRIES)]
            if len(self.variable) <= len(pool)
            else []
        )
        for sizes in (*smaller, {name: self.run.problem.sizes[name] for name in self.variable}):
            try:
                with foreign(REAL_S):
                    leaves = self.run.leaves(sizes, 0)
                    self.run.returned(leaves, doubled(self._harmless(leaves)))
                return sizes
            except Failed as error:
                reason = str(error)
        raise Failed(reason)

    def _waiting(self, leaves: Leaves) -> dict[str, torch.Tensor]:
        """The integers of a definition that have no rule."""
        rules, unbounded = self.request.get("rules", {}), self.run.problem.unbounded
        every = zip(leaves.names, leaves.tensors, leaves.paths, strict=True)
        return {name: tensor for name, tensor, path in every if path[0] in unbounded and name not in rules}

    def _harmless(self, leaves: Leaves) -> list[torch.Tensor]:
        """The tensors with zeros for integers that have no rule: the first place is always there."""
        waiting = self._waiting(leaves)
        return [torch.zeros_like(t) if n in waiting else t for n, t in zip(leaves.names, leaves.tensors, strict=True)]

    def _ranges(self) -> None:
        """Find the ranges of integers that neither the definition nor its constraints tell."""
        leaves = self.run.leaves(self.base, 0)
        waiting, own = self._waiting(leaves), dict(zip(leaves.names, doubled(self._harmless(leaves)), strict=True))

        def run(given: Mapping[str, torch.Tensor]) -> list[torch.Tensor]:
            with foreign(REAL_S):
                return self.run.results(leaves, list({**own, **given}.values()))

        sizes = {**self.run.problem.sizes, **self.base}
        held = {name: each["shape"] for name, each in self.request["inputs"].items() if each["shape"]}
        told = {name: list(shape) for name, shape in held.items() if set(shape) <= sizes.keys()}
        rules = dict(found_rules(waiting, told, sizes, run))
        self.request["rules"] |= rules
        self.run = RunningSource(self.request)
        for name in waiting:
            kind, axes = rules.get(name, ("", []))
            told_as = {"places": f"places below {' * '.join(axes)}", "lengths": f"lengths from 1 to {' * '.join(axes)}"}
            said = told_as.get(kind, "zeros and ones, as no trial tells its range")
            self.notes.append(f"`{name}` holds {said}")

    def _outputs(self) -> None:
        """Find the results: what it returns, and arguments that it changes where these are results too."""
        with foreign(REAL_S):
            leaves = self.run.leaves(self.base, 0)
            given = doubled(leaves.tensors)
            found, after = self.run.returned(leaves, given)
        listed = [leaf for leaf in pytree.tree_leaves(found) if isinstance(leaf, torch.Tensor)]
        pairs = zip(leaves.names, given, after, strict=True)
        altered = [name for name, before, now in pairs if not torch.equal(before, now)]
        if altered and self.run.problem.is_pure:
            raise Failed("it changes its arguments in place, which a kernel in its place would not")
        if self.run.problem.changes or not listed:
            self.run.changed = altered
        elif altered:
            named = ", ".join(f"`{name}`" for name in altered)
            self.notes.append(f"the source changes {named} in place too; the task is what it returns")
        count = len(listed) + len(self.run.changed)
        if not count:
            raise Failed("it returns no tensor, and changes none of its arguments")
        self.names = ["y" if count == 1 else f"y{index}" for index in range(count)]
        waiting = iter(self.names)
        self.returned = structure(
            pytree.tree_map(lambda leaf: next(waiting) if isinstance(leaf, torch.Tensor) else None, found)
        )
        with foreign(REAL_S), torch.no_grad():  # its own types
            again = self.run.leaves(self.base, 0)
            own = [leaf for leaf in pytree.tree_leaves(again(*again.tensors)) if isinstance(leaf, torch.Tensor)]
        self.types = [each.dtype for each in own] + [
            again.tensors[again.names.index(n)].dtype for n in self.run.changed
        ]

    def _shapes(self) -> list[list[str]]:
        """The shapes of inputs and results, as each follows one size of every axis."""
        before = self._seen(self.base)
        texts = [[str(size) for size in shape] for shape in before]
        for name in self.variable:
            step, after = self._stepped(name)
            for index, (one, other) in enumerate(zip(before, after, strict=True)):
                for axis, (a, b) in enumerate(zip(one, other, strict=True)):
                    if a != b:
                        slope, rest = (b - a) // step, a - (b - a) // step * self.base[name]
                        text = self.dims[name] if slope == 1 else f"{slope} * {self.dims[name]}"
                        texts[index][axis] = text + (f" + {rest}" if rest > 0 else f" - {-rest}" if rest else "")
        return texts

    def _stepped(self, name: str) -> tuple[int, list[tuple[int, ...]]]:
        reason = ""
        for step in STEPS:
            try:
                return step, self._seen({**self.base, name: self.base[name] + step})
            except Failed as error:
                reason = str(error)
        raise Failed(f"`{name}` cannot vary: {reason}")

    def _seen(self, sizes: Sizes) -> list[tuple[int, ...]]:
        with foreign(REAL_S):
            leaves = self.run.leaves(sizes, 0)
            return [tuple(t.shape) for t in (*leaves.tensors, *self.run.results(leaves, doubled(leaves.tensors)))]

    def elements(self, sizes: Sizes) -> int:
        """Elements of inputs and results."""
        return sum(torch.Size(shape).numel() for shape in self._shapes_at(sizes))

    def _shapes_at(self, sizes: Sizes) -> list[list[int]]:
        env = self.named(sizes)
        return [[parse(axis, tuple(env)).evaluate(env) for axis in shape] for shape in self.shapes]

    def named(self, sizes: Sizes) -> dict[str, int]:
        """The dims of these sizes."""
        return {self.dims[name]: size for name, size in sizes.items()}

    def passes(self, sizes: Sizes) -> bool:
        """Whether the source computes there what a verdict can hold a kernel to."""
        try:
            with foreign(REAL_S):
                found = []
                for seed in (0, 1, 2):
                    leaves = self.run.leaves(sizes, seed)
                    given = doubled(leaves.tensors)
                    results = self.run.results(leaves, given)
                    if any(bool(y.isnan().any()) for y in results):
                        return False
                    self.infinite |= {n for n, y in enumerate(results) if bool(y.isinf().any())}
                    found.append(results)
                torch.manual_seed(3)
                random.seed(3)
                self.draws |= not same(results, self.run.results(leaves, given))
        except Failed:
            return False
        self.varies |= any(not same(found[0], each) for each in found[1:])
        return [list(t.shape) for t in (*given, *results)] == self._shapes_at(sizes)

    def hidden(self) -> list[dict[str, Any]]:
        """Shapes of every kind at which the source computes something."""
        rng, found, begin = random.Random(0), list[dict[str, Any]](), time.process_time()
        for kind, (wanted, pool) in KINDS.items() if self.variable else [("its sizes", (1, (1,)))]:
            kept = 0
            for _ in range(TRIES):
                sizes = {name: rng.choice(pool) for name in self.variable}
                is_new = all(self.named(sizes) != each["dims"] for each in found)
                in_time = time.process_time() - begin < HIDDEN_S
                if (
                    in_time
                    and kept < wanted
                    and is_new
                    and self.elements(sizes) <= MOST_ELEMENTS
                    and self.passes(sizes)
                ):
                    found.append({"source": kind, "dims": self.named(sizes)})
                    kept += 1
        return found

    def smaller(self, most: int) -> dict[str, int]:
        """Sizes like the problem's own that have so many elements at most; the largest is halved again and again."""
        sizes = {name: self.run.problem.sizes[name] for name in self.variable}
        while self.elements(sizes) > most and any(size > 1 for size in sizes.values()):
            largest = max(sizes, key=sizes.__getitem__)
            sizes[largest] = max(1, sizes[largest] // 2)
        return sizes

    def workloads(self) -> list[dict[str, int]]:
        """The problem's own sizes; none of those whose tensors are too many to be sent to the source."""
        own = [{name: each[name] for name in self.variable} for each in self.run.problem.workloads]
        kept = [sizes if self.elements(sizes) <= MOST_WORKLOAD else {} for sizes in own]
        if not all(kept):
            left = len(kept) - sum(map(bool, kept))
            self.notes.append(f"{left} workloads of more than {MOST_WORKLOAD / 1e6:g} million numbers are left out")
        return kept

    def tensors(self) -> tuple[str, list[dict[str, Any]]]:
        """The type of the task, and the tensors of operator.toml."""
        with foreign(REAL_S), Draws() as draws:
            leaves = self.run.leaves(self.base, 0)
        floating = Counter(t.dtype for t in leaves.tensors if t.is_floating_point())
        common = floating.most_common(1)[0][0] if floating else torch.float32
        strange = {t.dtype for t in leaves.tensors} | {common, *self.types}
        if not strange <= NAMES.keys():
            raise Failed(f"tensors of type {min(map(str, strange - NAMES.keys()))} cannot be imported")
        taken, listed = {*self.taken, *self.names}, list[dict[str, Any]]()
        every = zip(leaves.names, leaves.tensors, leaves.origins, leaves.paths, self.shapes, strict=False)
        for name, tensor, origin, path, shape in every:
            kind = _type(tensor.dtype, common)
            entry = {"name": free_name(name, taken), "shape": shape, "dtype": "uint8" if kind == "bool" else kind}
            law = self._law(draws.of(tensor), tensor) if tensor.is_floating_point() else {}
            listed.append({**entry, "role": "in", "origin": origin, "path": path, **law})
        for number, (name, dtype) in enumerate(zip(self.names, self.types, strict=True)):
            kind, shape = _type(dtype, common), self.shapes[len(leaves.names) + number]
            more = {"specials": ["inf"]} if number in self.infinite else {}
            entry = {"name": name, "shape": shape, "dtype": "uint8" if kind == "bool" else kind, "role": "out"}
            listed.append({**entry, "bool": kind == "bool", **more})
        return NAMES[common], listed

    @staticmethod
    def _law(drawn: Any, tensor: torch.Tensor) -> dict[str, Any]:
        kind, a, b, *_ = drawn or observed(tensor)
        if kind not in ("uniform", "normal"):  # one number everywhere, or a few
            kind, a, b = "uniform", float(tensor.min()) - 0.5, float(tensor.max()) + 0.5
        return {"distribution": f"{kind}({a:.6g}, {b:.6g})"}


def _type(dtype: torch.dtype, common: torch.dtype) -> str:
    """The element type of a tensor of operator.toml."""
    short = (torch.float16, torch.bfloat16)
    if dtype == common or dtype in short:
        return "T"
    return "ACC" if dtype == torch.float32 and common in short else NAMES[dtype]


def executed(request: Mapping[str, Any], reason: str) -> dict[str, Any]:
    """The description of a problem that no graph says, for `reason`. Raises Failed."""
    trial = SourceTrial(request)
    hidden = trial.hidden()
    if trial.draws:
        raise Failed(f"{reason}; and it draws random numbers, which only a graph has as inputs")
    if not hidden:
        raise Failed(f"{reason}; and no size was found at which its source computes numbers")
    if not trial.varies:
        raise Failed("its results do not depend on its inputs, so that every wrong kernel would pass: it is no task")
    dtype, tensors = trial.tensors()
    small = trial.smaller(MOST_WORKLOAD // 8)
    fitting = [sizes for sizes in (trial.smaller(MOST_CPU >> power) for power in range(6)) if trial.passes(sizes)]
    workloads = trial.workloads() if request.get("workloads") else []
    own = {name: trial.run.problem.sizes[name] for name in trial.variable}
    outputs = [each for each in tensors if each["role"] == "out"]
    axes = {axis for each in tensors for axis in each["shape"]}
    return {
        "source": {"request": trial.request, "changed": trial.run.changed},
        "graph": None,
        "making": {},
        "faint": [],
        "derived": {},
        "dims": trial.named(own if any(workloads) or not workloads else small),
        "knobs": trial.dims,
        "hidden": hidden,
        "cpu": trial.named(fitting[0]) if fitting else hidden[-1]["dims"],
        "quick": [],
        "small": trial.named(small),
        "inputs": tensors,
        "returned": trial.returned,
        "flops": [],
        "bytes": " + ".join(
            f"{_size(each)} * {' * '.join(f'({a})' for a in each['shape']) or '1'}" for each in outputs
        ),
        "terms": f"max({', '.join(sorted(axes))})" if len(axes) > 1 else next(iter(axes), "1"),
        "dtype": dtype,
        "workloads": [trial.named(each) if each else {} for each in workloads],
        "bound": "measured",
        "notes": [f"the source is executed as it is, as {reason}", *trial.notes, *trial.run.problem.notes],
        "differences": [],
        "is_slow": False,
    }


def _size(tensor: Mapping[str, Any]) -> str:
    return str(DTYPES[tensor["dtype"]].size) if tensor["dtype"] in DTYPES else f"sizeof_{tensor['dtype']}"


# --- answers ----------------------------------------------------------------------------------------------------------

_TYPE_NAMES = {dtype: name for name, dtype in TYPES.items()}
_BYTES_OF_HEAD = 4


def packed(head: Mapping[str, Any], tensors: Mapping[str, torch.Tensor]) -> bytes:
    """Return a message of a table and of tensors by name."""
    told = [[name, _TYPE_NAMES[each.dtype], list(each.shape)] for name, each in tensors.items()]
    text = json.dumps({"head": dict(head), "tensors": told}).encode()
    raw = (
        each.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes() for each in tensors.values()
    )
    return b"".join((len(text).to_bytes(_BYTES_OF_HEAD, "little"), text, *raw))


def unpacked(message: bytes) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
    """Return what `packed` was given. It raises ValueError, KeyError or TypeError for another message."""
    begin = _BYTES_OF_HEAD + int.from_bytes(message[:_BYTES_OF_HEAD], "little")
    told = json.loads(message[_BYTES_OF_HEAD:begin])
    tensors = {}
    for name, type_name, shape in told["tensors"]:
        dtype = TYPES[type_name]
        size = math.prod(shape) * dtype.itemsize
        if size < 0 or begin + size > len(message):
            raise ValueError(f"a message without all of `{name}`")
        raw = (
            torch.frombuffer(bytearray(message[begin : begin + size]), dtype=dtype)
            if size
            else torch.empty(0, dtype=dtype)
        )
        tensors[str(name)] = raw.reshape(shape)
        begin += size
    return dict(told["head"]), tensors


def answer(run: RunningSource, head: Mapping[str, Any], tensors: Mapping[str, torch.Tensor]) -> bytes:
    """The answer to one question: results for these tensors, or tensors that the source or its definition makes."""
    try:
        with foreign(int(head["seconds"])):
            leaves = run.leaves(head["dims"], int(head["seed"]))
            if not tensors:
                return packed({}, {str(number): each for number, each in enumerate(leaves.tensors)})
            given = [
                t.to(o.dtype) if o.dtype == torch.bool else t
                for t, o in zip(tensors.values(), leaves.tensors, strict=True)
            ]
            return packed({}, {str(number): each for number, each in enumerate(run.results(leaves, given))})
    except Failed as error:
        return packed({"failed": str(error)}, {})


def main() -> None:
    """Answer until the other side is gone."""
    warnings.simplefilter("ignore")
    sys.path.insert(0, ".")
    torch.set_num_threads(1)
    told = json.loads(Path("request.json").read_text(encoding="utf-8"))
    prepare_torch()
    run = RunningSource(told["request"], told["changed"])
    with socket.socket(fileno=int(sys.argv[1])) as channel, channel.makefile("rwb") as stream:
        while length := stream.read(4):
            head, tensors = unpacked(stream.read(int.from_bytes(length, "little")))
            message = answer(run, head, tensors)
            stream.write(len(message).to_bytes(4, "little") + message)
            stream.flush()


if __name__ == "__main__":
    main()
