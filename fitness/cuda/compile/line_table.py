"""Lines of a kernel file that instructions come from, by the line table of a cubin that was compiled with -lineinfo.

ptxas writes DWARF's section .debug_line in its versions 2 to 4 (dwarfstd.org; section 6.2 of DWARF 4), with two
instructions of its own, which LLVM's documentation of the PTX back end describes: 0x90 says into which row's place the
following code was inlined, 0x91 names a function. Libraries pass over them, so that code from a header, such as all of
CuTe's, would have no line of the kernel file. Nothing here is believed either: see `fitness.cuda.compile.cubin`.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from fitness.cuda.compile.cubin import Cubin, CubinError

VERSIONS = range(2, 5)
_SECTION = ".debug_line"
_HEAD = struct.Struct("<IHI")
_COPY, _ADVANCE_PC, _ADVANCE_LINE, _SET_FILE, _CONST_ADD_PC, _FIXED_ADVANCE_PC = 1, 2, 3, 4, 8, 9
_END_SEQUENCE, _SET_ADDRESS, _INLINED_CALL = 1, 2, 0x90
_MOST_BITS = 64
_MOST_INLINED = 64
"""Calls in each other that are followed back to the kernel file."""


@dataclass(frozen=True)
class Row:
    """Code that comes from one line: from this instruction on, up to the next row's."""

    offset: int = 0
    """Bytes from the beginning of the code's section."""
    file: str = ""
    """Name of the file without its folder."""
    line: int = 1
    inlined_at: int = 0
    """The number, from 1, of the section's row whose place it was inlined into; 0: it was not."""


@dataclass(frozen=True)
class Lines:
    """The lines of one section of code."""

    rows: tuple[Row, ...]
    """Rows in the order of the table, by which `inlined_at` counts."""

    @cached_property
    def _by_offset(self) -> list[Row]:
        return sorted(self.rows, key=lambda row: row.offset)

    def line(self, offset: int, file: str) -> int | None:
        """Return the line of `file` that an instruction comes from; None where none is known to.

        Of code that was inlined from other files it is the line that asks for it.
        """
        # Of rows with one offset the last one counts: what comes before it is where code was inlined.
        place = bisect_right(self._by_offset, offset, key=lambda row: row.offset)
        row = self._by_offset[place - 1] if place else None
        for _ in range(_MOST_INLINED):
            if row is None or row.file == file:
                return row.line if row else None
            row = self.rows[row.inlined_at - 1] if 0 < row.inlined_at <= len(self.rows) else None
        return None


def read_lines(cubin: Cubin) -> dict[str, Lines]:
    """Return the lines of every section of code by its name; none where there is no table.

    It raises CubinError for a table that is cut off or of an unknown version.
    """
    number = next((n for n, section in enumerate(cubin.sections) if section.name == _SECTION), None)
    if number is None:
        return {}
    addresses = {r.offset: (r.symbol.section, r.symbol.value) for r in cubin.relocations() if r.section == number}
    found: dict[str, list[Row]] = {}
    try:
        for section, row in _rows(cubin.sections[number].data, addresses):
            rows = found.setdefault(cubin.sections[section].name, []) if 0 < section < len(cubin.sections) else []
            if rows[-1:] != [row]:  # where a function begins that is not inlined it stands twice, and counts once
                rows.append(row)
    except (IndexError, ValueError, struct.error):
        raise CubinError("its table of lines is cut off") from None
    return {name: Lines(tuple(rows)) for name, rows in found.items()}


def _rows(data: bytes, addresses: Mapping[int, tuple[int, int]]) -> Iterator[tuple[int, Row]]:
    """The rows of all programs of a table with the number of the section that they tell of."""
    begin = 0
    while begin < len(data):
        length, version, header_bytes = _HEAD.unpack_from(data, begin)
        if version not in VERSIONS:
            raise CubinError(f"its table of lines is of the unknown version {version}")
        end = begin + 4 + length
        if end > len(data):
            raise CubinError("its table of lines is cut off")
        yield from _Program(data, begin + _HEAD.size, begin + _HEAD.size + header_bytes, end, version).run(addresses)
        begin = end


class _Program:
    """One program of a table, and the machine that runs it."""

    def __init__(self, data: bytes, header: int, begin: int, end: int, version: int) -> None:
        self._data, self._at = data, header
        self._step, *others = (self._byte() for _ in range(6 if version >= 4 else 5))
        _, base, self._range, self._first_special = others[-4:]
        self._base = base - 256 if base > 127 else base
        if not self._range:
            raise CubinError("its table of lines has no range of lines")
        self._operands = [0, *(self._byte() for _ in range(self._first_special - 1))]
        while self._text():  # folders
            pass
        self._files = [""]
        while name := self._text():
            self._files.append(name.rpartition("/")[2])
            for _ in range(3):
                self._number()
        self._at, self._end = begin, end

    def run(self, addresses: Mapping[int, tuple[int, int]]) -> Iterator[tuple[int, Row]]:
        """The rows; `addresses` are those that the loader would write, by their place."""
        section, state, file = 0, Row(), 1
        while self._at < self._end:
            code, added = self._byte(), 0
            if code >= self._first_special or code == _CONST_ADD_PC:
                special = (255 if code == _CONST_ADD_PC else code) - self._first_special
                added = special // self._range * self._step
                if code != _CONST_ADD_PC:
                    state = replace(state, line=state.line + self._base + special % self._range)
            elif code == 0:
                end = self._number() + self._at
                kind = self._byte()
                if kind == _SET_ADDRESS:
                    section, offset = addresses.get(self._at, (0, 0))
                    state = replace(state, offset=offset)
                elif kind == _INLINED_CALL:
                    state = replace(state, inlined_at=self._number())
                elif kind == _END_SEQUENCE:
                    section, state, file = 0, Row(), 1
                self._at = end
            elif code == _ADVANCE_PC:
                added = self._number() * self._step
            elif code == _ADVANCE_LINE:
                state = replace(state, line=state.line + self._signed())
            elif code == _SET_FILE:
                file = self._number()
            elif code == _FIXED_ADVANCE_PC:
                added = self._byte() | self._byte() << 8
            elif code != _COPY:
                for _ in range(self._operands[code]):
                    self._number()
            state = replace(state, offset=state.offset + added)
            if code == _COPY or code >= self._first_special:
                yield section, replace(state, file=self._files[file] if 0 < file < len(self._files) else "")

    def _byte(self) -> int:
        self._at += 1
        return self._data[self._at - 1]

    def _number(self) -> int:
        """LEB128 without a sign."""
        value = shift = 0
        while True:
            byte = self._byte()
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value
            if shift > _MOST_BITS:
                raise CubinError("a number in its table of lines has no end")

    def _signed(self) -> int:
        begin = self._at
        value = self._number()
        bits = 7 * (self._at - begin)
        return value - (1 << bits) if value >> (bits - 1) & 1 else value

    def _text(self) -> str:
        end = self._data.index(b"\0", self._at)
        text, self._at = self._data[self._at : end], end + 1
        return text.decode(errors="replace")
