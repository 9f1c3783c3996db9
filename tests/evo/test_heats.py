"""Heats: only the fastest of the kernels that are tried side by side goes on."""

from __future__ import annotations

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from evo.search.verdicts import Heat

FATES = st.lists(st.tuples(st.sampled_from(["runs", "fails", "slow to start"]), st.integers(-3, 3)), max_size=6)


async def _run(heat: Heat, fate: str, log_speedup: int) -> bool:
    with heat.entered() as entrant:
        for _ in range(3 if fate == "slow to start" else 1):
            await asyncio.sleep(0)
        return fate != "fails" and await entrant.wins(log_speedup)


@given(FATES)
def test_the_fastest_of_all_goes_on_whatever_becomes_of_the_others(fates: list[tuple[str, int]]) -> None:
    async def all_of_them() -> list[bool]:
        heat = Heat()
        runs = [asyncio.ensure_future(_run(heat, *fate)) for fate in fates]
        return await asyncio.wait_for(asyncio.gather(*runs), 5)

    best = max((speed for fate, speed in fates if fate != "fails"), default=0)
    assert asyncio.run(all_of_them()) == [fate != "fails" and speed == best for fate, speed in fates]


def test_who_comes_later_is_held_against_all_before() -> None:
    async def one_after_the_other() -> list[bool]:
        heat = Heat()
        return [await _run(heat, "runs", speed) for speed in (1, 3, 2, 3)]

    assert asyncio.run(one_after_the_other()) == [True, True, False, True]


def test_one_that_is_cancelled_keeps_nobody_waiting() -> None:
    async def cancelled() -> bool:
        heat = Heat()
        with heat.entered() as first:
            stuck = asyncio.ensure_future(_hang(heat))
            await asyncio.sleep(0)
            wins = asyncio.ensure_future(first.wins(1.0))
            await asyncio.sleep(0)
            assert not wins.done()
            stuck.cancel()
            return await asyncio.wait_for(wins, 5)

    assert asyncio.run(cancelled())


async def _hang(heat: Heat) -> None:
    with heat.entered():
        await asyncio.Event().wait()
