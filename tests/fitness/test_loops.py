"""Loops are found in machine code."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fitness.cpu.loops import DEEPEST, loops_of, nesting, vector_work

Body = list["int | Body"]
"""Straight code of some length, or a loop, one after the other."""
bodies = st.recursive(
    st.lists(st.integers(1, 3), min_size=1, max_size=3),
    lambda inner: st.lists(st.one_of(st.integers(1, 3), inner), min_size=1, max_size=4),
    max_leaves=25,
)


def laid_out(body: Body, depth: int, depths: list[int], edges: list[tuple[int, int]]) -> None:
    """Append nodes with their depths; a loop is a test, its body, and a jump back to the test, which leads past it."""
    for part in body:
        if isinstance(part, int):
            depths += [depth] * part
            continue
        test = len(depths)
        depths.append(depth + 1)
        laid_out(part, depth + 1, depths, edges)
        depths.append(depth + 1)
        edges += [(len(depths) - 1, test), (test, len(depths))]


@given(bodies)
def test_nodes_lie_in_as_many_loops_as_the_program_has_around_them(body: Body) -> None:
    depths: list[int] = []
    back: list[tuple[int, int]] = []
    laid_out(body, 0, depths, back)
    depths.append(0)
    ends = {source for source, target in back if target <= source}
    edges = np.array(back + [(i, i + 1) for i in range(len(depths) - 1) if i not in ends], dtype=np.int64).reshape(
        -1, 2
    )
    found, innermost = nesting(len(depths), edges[:, 0], edges[:, 1], np.array([0]))
    assert found.tolist() == [min(depth, DEEPEST) for depth in depths]
    assert ((innermost >= 0) == (found > 0)).all()


LISTING = """
Disassembly of section .text:

0000000000000000 <helper>:
   0:\tvaddps %ymm0,%ymm1,%ymm1
   4:\tret

0000000000000010 <f>:
  10:\tvmovss (%rdi),%xmm0
  14:\tcall   0 <helper>
  19:\tnotrack jmp *%rax
  1c:\tvmulss %xmm0,%xmm0,%xmm0
  20:\tjne    1c <f+0xc>
  22:\tjne    10 <f>
  24:\tret
"""


def test_a_function_is_as_deep_as_where_it_is_called_and_a_table_of_jumps_hides_nothing() -> None:
    assert [(work.depth, work.bits) for work in loops_of(LISTING)] == [(1, 256), (1, 0), (2, 0)]
    assert vector_work(LISTING) == (256, 1 - 72 / 80)


def test_nothing_to_say_of_other_processors() -> None:
    arm = "0000000000000000 <f>:\n   0:\tfadd\tv0.4s, v1.4s, v0.4s\n   4:\tret\n"
    assert vector_work(arm) == vector_work("") == (0, 0.0)


def test_a_listing_may_be_cut_where_a_function_begins() -> None:
    listing = "0 <f>:\n 0:\tcall 5 <f+0x5>\n\t\t\t1: R_X86_64_PLT32\tg-0x4\n10 <g>:\n"
    assert vector_work(listing) == (0, 0.0)
