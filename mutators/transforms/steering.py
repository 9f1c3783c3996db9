"""Which transforms suit what limits a kernel, and why: what a profiler says orders what `transform` tries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random

from fitness.profiling.profiles import Bottleneck

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
