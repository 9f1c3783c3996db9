"""The mutator that changes a kernel's structure without a language model; what a profiler says orders what it tries."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from random import Random
from typing import Any

from fitness.profiling.profiles import Bottleneck
from mutators.analysis.cpp_tree import SyntaxTree
from mutators.analysis.plan_edit import with_tunables
from mutators.analysis.source_text import apply_edits
from mutators.analysis.syntax import Unreadable
from mutators.base import Parent, Proposal, Request, worked
from mutators.transforms import TRANSFORMS, Site
from mutators.tuning.space import bad_params, drawn, space_of, with_setting
from operators.definition.spec import Operator
from operators.errors import PlanError, UserError, unknown
from operators.kernel import Kernel

MAX_COUNT = 32


class Transform:
    """Applies transforms of `mutators.transforms` at places drawn from the request's seed.

    Params: `rewrite` names one (any otherwise: uniform over those that apply, then over their places), `count` how many
    are made in a row (1). With `bottleneck`, the class of what limits the parent, those that suit it tend to be tried
    first (`mutators.transforms.mutator`). New tunables come with a default, so that the child runs as it is and `tune`
    can take over; with `random_values` (false) all tunables of the child get random values instead, such as its plan
    allows (for the params `workload_set` and `facts` see `Tune`). A child's header always parses and its code holds no
    more syntax errors than its parent's; whether it compiles and is right is for the evaluator to say.
    """

    name = "transform"

    def applies(self, kernel: Kernel, operator: Operator) -> bool:
        """True for every kernel of a target that some transform serves."""
        return kernel.operator == operator.name and any(kernel.target in r.targets for r in TRANSFORMS.values())

    def propose(self, request: Request, parents: tuple[Parent, ...], operator: Operator) -> Proposal:
        """The first parent, changed. A failure says what is missing."""
        return worked(self.name, lambda: _child(request, parents, operator), refused="the parent's plan cannot be used")


def transform_names(target: str) -> tuple[str, ...]:
    """The transforms that serve a target, in alphabetical order."""
    return tuple(name for name, transform in TRANSFORMS.items() if target in transform.targets)


def _child(request: Request, parents: tuple[Parent, ...], operator: Operator) -> tuple[Kernel | None, str]:
    """The child and what was done, or None and what is missing."""
    wish, count = request.params.get("rewrite"), request.params.get("count", 1)
    bottleneck = request.params.get("bottleneck", "")
    problem = _bad_wish(wish, count, bottleneck) or ("" if parents else "transform needs a parent")
    random_values = request.params.get("random_values", False)
    if not problem and random_values:
        problem = bad_params(request, parents[0].kernel)
    if problem:
        return None, problem
    parent, random = parents[0].kernel, Random(request.seed)
    text, made = parent.source, []
    for _ in range(count):
        tree = SyntaxTree(text, operator, parent.target, request.task.dtype)
        step = _step(tree, wish, random, bottleneck)
        if step is None:
            break
        text = step[0]
        made.append(step[1])
    if not made:
        what = f"`{wish}` applies nowhere" if wish else "no transform applies"
        return None, f"{what} in this {operator.name} kernel"
    child = Kernel(parent.operator, parent.target, text, dict(parent.values))
    if random_values:
        child, values = _with_random_values(child, request, operator, random)
        made.append(values)
    return child, "; ".join(made)


def _with_random_values(child: Kernel, request: Request, operator: Operator, random: Random) -> tuple[Kernel, str]:
    """The child with random values, and which; as it was where there is nothing to choose, or nothing that fits."""
    try:
        space = space_of(child, request, operator)
        setting = drawn(space, random) if space.size > 1 else None
    except UserError as error:
        return child, f"kept values: {error}"
    return with_setting(child, space, setting) if setting else (child, "kept values")


def _bad_wish(wish: Any, count: Any, bottleneck: Any) -> str:
    """The fault of the params; empty if there is none."""
    if wish is not None and wish not in TRANSFORMS:
        return unknown("rewrite", str(wish), TRANSFORMS)
    if type(count) is not int or not 1 <= count <= MAX_COUNT:
        return f"count must be an integer from 1 to {MAX_COUNT}, not {count!r}"
    if bottleneck and bottleneck not in list(Bottleneck):
        return unknown("bottleneck", str(bottleneck), [each.value for each in Bottleneck])
    return ""


def _step(tree: SyntaxTree, wish: str | None, random: Random, bottleneck: str) -> tuple[str, str] | None:
    """One transform: the new text and what was done. None where nothing applies."""
    names = [wish] if wish else list(transform_names(tree.target))
    if bottleneck:
        names = ordered(names, Bottleneck(bottleneck), random)
    else:
        random.shuffle(names)
    for name in names:
        sites = list(sites_of(tree, name))
        random.shuffle(sites)
        for site in sites:
            text = apply(tree, site)
            if text is not None:
                return text, f"{name}: {site.description}"
    return None


def sites_of(tree: SyntaxTree, name: str) -> Iterator[Site]:
    """The places where a transform applies, in the order of the file."""
    transform = TRANSFORMS[name]
    if tree.target in transform.targets:
        try:
            yield from transform.sites(tree)
        except (Unreadable, RecursionError):
            return  # broken or absurdly nested code: what was found so far is all there is


def apply(tree: SyntaxTree, site: Site) -> str | None:
    """The file after one transform, or None where the result would not be a usable file."""
    text = apply_edits(tree.data, site.edits).decode()
    changed = with_tunables(text, site.tune)
    if changed is None or changed == tree.text:
        return None
    try:
        child = SyntaxTree(changed, tree.operator, tree.target, tree.dtype)
    except PlanError:
        return None  # too many tunables, mostly
    return changed if child.error_count <= tree.error_count else None


# --- which transforms suit what limits a kernel -----------------------------------------------------------------------


SUITED_WEIGHT = 4.0
"""Factor by which a transform that suits more likely comes first than one that does not: the others are tried too, as a
class is a guess at what helps."""
SUITS: Mapping[Bottleneck, Mapping[str, str]] = {
    Bottleneck.LAUNCH: {
        "share_rows": "more threads work on what few blocks do",
        "block_size": "another division into blocks fills more multiprocessors",
        "fuse": "one loop over the data, and on a CPU one region of threads, is begun instead of two",
        "drop_pragma": "threads that take longer to begin than the work takes are not begun",
        "sum_before_atomic": "fewer threads wait for each other at the end",
    },
    Bottleneck.ROOFLINE: {
        "fuse": "a second pass over the same data falls away",
        "single_precision": "the same operations have a higher roof",
        "tile": "data that are used again stay in a cache",
    },
    Bottleneck.BANDWIDTH: {
        "vectorize": "whole vectors take fewer accesses for the same bytes",
        "fuse": "a second pass over the same data falls away",
        "tile": "data that are used again stay in a cache",
        "interchange": "neighbours in memory are read one after the other",
        "accumulator_tile": "what the inner loop reads is read along memory, and used for a tile of results",
        "register_tile": "what is loaded once is used for several results",
        "thread_tile": "what is loaded once is used for several results",
        "share_rows": "neighbouring threads read neighbouring elements",
        "hoist": "what does not change is loaded once",
    },
    Bottleneck.COMPUTE: {
        "hoist": "what does not change is computed once",
        "reciprocal": "a multiplication takes the place of a division",
        "single_precision": "units for float are many times as fast as those for double",
        "keep_values": "what is expensive is not computed twice",
        "simd": "vector units do several operations at once",
        "register_tile": "indices and loads are shared by several results",
        "thread_tile": "indices and loads are shared by several results",
        "full_tile": "bounds that are known make code without tests",
        "unroll": "loops count and test less",
    },
    Bottleneck.LATENCY: {
        "split_reduction": "sums that do not wait for each other",
        "unroll": "several loads are under way at once",
        "vectorize": "each load brings more",
        "coarsen": "each thread has several elements under way",
        "thread_tile": "each thread has several independent results under way",
        "register_tile": "each thread has several independent results under way",
        "share_rows": "more threads are there to go on while others wait",
        "block_size": "more warps may fit onto a multiprocessor",
        "launch_bounds": "registers are limited such that more blocks fit onto a multiprocessor",
        "sum_before_atomic": "one thread waits for memory instead of all",
        "prefetch": "what an index leads to is on its way before it is needed",
        "restrict": "loads may go ahead of stores",
        "simd": "lanes do not wait for each other",
        "parallel": "more threads work",
        "parallel_collapse": "more threads work",
        "parallel_dynamic": "no thread waits for the slowest",
    },
}
"""By what limits a kernel, the transforms that may help and the reason; `tests/mutators/test_steering.py` knows all."""


def ordered(names: Sequence[str], bottleneck: Bottleneck, rng: Random) -> list[str]:
    """Return transforms in a random order in which those that suit tend to come first.

    Each place is drawn from the rest in proportion to the weights (Efraimidis and Spirakis, doi
    10.1016/j.ipl.2005.11.003).
    """
    suited = SUITS[bottleneck]
    keys = {name: rng.random() ** (1.0 / (SUITED_WEIGHT if name in suited else 1.0)) for name in names}
    return sorted(names, key=lambda name: -keys[name])
