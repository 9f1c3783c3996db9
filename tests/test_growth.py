"""The time of readers of strangers' texts grows with the length of a text, and not with its square."""

from __future__ import annotations

import pytest

from tests.choosing import some_slow
from tests.readers import PIECES, READERS, TIMES, Reader

SIZE = 1 << 16
MOST = 4 * TIMES
"""A growth with the square is TIMES times TIMES, and a linear one may look worse than it is."""
LONG = {"asm statements", "headers of a source", "preprocessed source", "source", "words of a source"}
"""Readers that take long, all of them of sources."""


def check(reader: Reader, pieces: tuple[str, ...], size: int) -> None:
    for frame in reader.frames:
        for piece in pieces:
            # What seems too much is looked at once more: a collection of garbage falls into one text or the other.
            growth = reader.growth(frame, piece, size)
            if growth > MOST:
                growth = min(growth, reader.growth(frame, piece, size))
            assert growth <= MOST, f"{growth:.0f} times as long for {TIMES} times as many {piece!r} in {frame!r}"


@pytest.mark.parametrize("name", some_slow(READERS, {*READERS} - LONG))
def test_a_text_that_is_made_for_a_reader_costs_it_in_proportion(name: str) -> None:
    check(READERS[name], READERS[name].pieces, SIZE)


@pytest.mark.slow
@pytest.mark.parametrize("name", READERS)
def test_every_text_costs_a_reader_in_proportion(name: str) -> None:
    check(READERS[name], (*READERS[name].pieces, *PIECES), 4 * SIZE)
