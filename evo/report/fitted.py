"""Tables that fit where they are shown: columns give way as a whole, and neither a number nor an id is ever cut."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from evo.report.output import printable

GAP = 2
"""Spaces between columns."""
LEAST_NAME, LEAST_WORDS = 24, 12
"""Columns of names and of words that are longer get so much room at least."""
MOST_WORD = 40
"""Words that are longer may be broken."""


@dataclass(frozen=True)
class Field:
    """One column."""

    name: str
    kind: Literal["number", "id", "name", "words"] = "number"
    """Numbers and ids stand in one line. Names may be folded anywhere, words between words."""
    rank: int = 0
    """Where there is no room, columns of the highest rank give way first; those of rank 0 stay."""

    def natural(self, cells: Sequence[str]) -> int:
        """The width at which nothing has to be folded."""
        return max(_widest(text) for text in (self.name, *cells))

    def least(self, cells: Sequence[str]) -> int:
        """The width below which the column is no use."""
        natural = self.natural(cells)
        if self.kind == "name":
            return min(natural, LEAST_NAME)
        if self.kind == "words":
            longest = max((cell_len(word) for text in (self.name, *cells) for word in text.split()), default=0)
            return min(natural, max(LEAST_WORDS, min(longest, MOST_WORD)))
        return natural


class Fitted:
    """Rows of text as a table.

    Columns that do not fit are left out and told below, or with `details` stand below their row; where even those of
    rank 0 have no room beside each other, every row is a block with a line for each column.
    """

    def __init__(
        self, fields: Sequence[Field], rows: Sequence[Sequence[str]], *, details: bool = False, silent: bool = False
    ) -> None:
        """Each row has a text for each of `fields`; a `silent` table does not tell which it leaves out."""
        self._fields = tuple(fields)
        self._rows = [tuple(map(printable, row)) for row in rows]
        self._details = details
        self._silent = silent

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width = options.max_width
        shown = self._chosen(width)
        if self._width(shown) > width:
            yield from self._blocks()
            return
        left = [index for index in range(len(self._fields)) if index not in shown]
        if left and self._details:
            yield from self._with_details(shown, left, width)
            return
        yield self._table(shown, self._rows, self._widths(shown, width))
        if left and not self._silent:
            names = ", ".join(dict.fromkeys(self._fields[index].name for index in left))
            yield Text(f"no room for: {names} (a wider terminal, or --json)", style="dim")

    def _column(self, index: int) -> list[str]:
        return [row[index] for row in self._rows]

    def _chosen(self, width: int) -> list[int]:
        """The columns that there is room for, or those that must not be left out."""
        shown = list(range(len(self._fields)))
        while self._width(shown) > width:
            index = max(shown, key=lambda each: self._fields[each].rank, default=0)
            if not self._fields[index].rank:
                break
            shown.remove(index)
        return shown

    def _width(self, shown: Sequence[int]) -> int:
        """What these columns take at least."""
        return sum(self._fields[i].least(self._column(i)) for i in shown) + GAP * (len(shown) - 1)

    def _widths(self, shown: Sequence[int], width: int) -> list[int]:
        """Each column's width; what is left over goes to those that are folded most."""
        widths = [self._fields[i].least(self._column(i)) for i in shown]
        natural = [self._fields[i].natural(self._column(i)) for i in shown]
        spare = width - sum(widths) - GAP * (len(shown) - 1)
        while spare > 0 and (lacking := [n for n in range(len(shown)) if widths[n] < natural[n]]):
            part = max(spare // len(lacking), 1)
            for n in lacking:
                given = min(part, natural[n] - widths[n], spare)
                widths[n] += given
                spare -= given
        return widths

    def _table(
        self, shown: Sequence[int], rows: Sequence[Sequence[str]], widths: Sequence[int], *, header: bool = True
    ) -> Table:
        table = Table(box=None, pad_edge=False, padding=(0, GAP, 0, 0), header_style="bold", show_header=header)
        for index, width in zip(shown, widths, strict=True):
            field = self._fields[index]
            table.add_column(
                Text(printable(field.name)), width=width, overflow="fold", no_wrap=field.kind in ("number", "id"),
                justify="right" if field.kind == "number" else "left",
            )  # fmt: skip
        for row in rows:
            table.add_row(*(Text(row[index]) for index in shown))
        return table

    def _with_details(self, shown: Sequence[int], left: Sequence[int], width: int) -> Iterator[RenderableType]:
        widths = self._widths(shown, width)
        for number, row in enumerate(self._rows):
            yield self._table(shown, [row], widths, header=number == 0)
            told = "; ".join(f"{self._fields[i].name}: {row[i]}" for i in left if row[i] not in ("", "-"))
            if told:
                yield Padding(Text(told, style="dim", overflow="fold"), (0, 0, 0, 4))

    def _blocks(self) -> Iterator[RenderableType]:
        """Every row as a block."""
        for number, row in enumerate(self._rows):
            if number:
                yield Text()
            for field, text in zip(self._fields, row, strict=True):
                yield Text.assemble((f"{printable(field.name)}: ", "bold"), text, overflow="fold")


def _widest(text: str) -> int:
    return max(map(cell_len, text.split("\n")), default=0)
