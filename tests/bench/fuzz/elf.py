"""Mutations of ELF files: objects, linked images and cubins."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from random import Random

Layout = Mapping[str, tuple[str, int]]
"""Fields of a record, each with its format and its offset."""

HEADER: Layout = {
    "kind": ("H", 16), "machine": ("H", 18), "entry": ("Q", 24), "segments_at": ("Q", 32), "sections_at": ("Q", 40),
    "segment_bytes": ("H", 54), "segments": ("H", 56), "section_bytes": ("H", 58), "sections": ("H", 60),
    "names": ("H", 62),
}  # fmt: skip
SEGMENT: Layout = {
    "kind": ("I", 0), "flags": ("I", 4), "offset": ("Q", 8), "address": ("Q", 16), "file_bytes": ("Q", 32),
    "bytes": ("Q", 40), "alignment": ("Q", 48),
}  # fmt: skip
SECTION: Layout = {
    "name": ("I", 0), "kind": ("I", 4), "flags": ("Q", 8), "address": ("Q", 16), "offset": ("Q", 24),
    "bytes": ("Q", 32), "link": ("I", 40), "info": ("I", 44), "alignment": ("Q", 48), "entry_bytes": ("Q", 56),
}  # fmt: skip
TAG: Layout = {"tag": ("Q", 0), "value": ("Q", 8)}
RELOCATION: Layout = {"place": ("Q", 0), "type": ("I", 8), "symbol": ("I", 12), "addend": ("q", 16)}
SYMBOL: Layout = {
    "name": ("I", 0), "info": ("B", 4), "other": ("B", 5), "section": ("H", 6), "value": ("Q", 8), "bytes": ("Q", 16),
}  # fmt: skip
SECTION_NAMES = (
    ".rela.init", ".rela.dyn", ".rela.text", ".rela.plt", ".rela.iplt", ".rela.got", ".rela.ifunc", ".rela.bss",
    ".rela.gnu.linkonce.t.x", ".init_array", ".init_array.00001", ".preinit_array", ".fini_array", ".ctors", ".dtors",
    ".init", ".fini", ".got", ".got.plt", ".dynamic", ".relr.dyn", ".tdata", ".tbss", ".data", ".bss", ".text",
    ".rodata", ".data.rel.ro", ".interp", ".gnu.warning.malloc", ".gnu.hash",
    ".note.gnu.build-id", ".eh_frame", ".debug_info",
    ".gnu.lto_.x", ".comment", "", "x" * 70000,
)  # fmt: skip
NUMBERS = (0, 1, 2, 3, 4, 7, 8, 24, 255, 0x1000, 0xFFF1, 0xFFF2, 0xFFFF, 2**31, 2**32 - 1, 2**62, 2**63, 2**64 - 1)
LIKELY: Mapping[tuple[str, str], tuple[int, ...]] = {
    ("relocation", "type"): (1, 5, 6, 7, 8, 16, 17, 18, 36, 37, 37, 37, 38, 42),  # 37: IRELATIVE
    ("tag", "tag"): (
        0, 1, 2, 4, 7, 12, 12, 13, 15, 16, 21, 22, 23, 25, 25, 26, 27, 29, 30, 32, 33, 35, 36, 37, 0x6FFFFFFB,
        0x7FFFFFFD, 0x7FFFFFFF, 0x6FFFFEFC,
    ),
    ("symbol", "info"): (0x00, 0x10, 0x11, 0x12, 0x1A, 0x1A, 0x16, 0x20, 0x22, 0xA2, 0x13, 0x05),
    ("symbol", "section"): (0, 1, 2, 0xFF00, 0xFFF1, 0xFFF2, 0xFFFF),
    ("section", "kind"): (0, 1, 2, 3, 4, 6, 7, 8, 9, 11, 14, 15, 16, 17, 18, 19, 0x6FFFFFF6, 0x70000001, 0x80000000),
    ("section", "flags"): (0, 1, 2, 3, 4, 6, 7, 0x12, 0x32, 0x42, 0x202, 0x403, 0x802, 0x100002, 0x80000002),
    ("segment", "kind"): (0, 1, 2, 3, 4, 5, 6, 7, 0x6474E550, 0x6474E551, 0x6474E552, 0x6474E553),
    ("segment", "flags"): (0, 1, 2, 3, 4, 5, 6, 7),
}  # fmt: skip


@dataclass(frozen=True)
class Record:
    """One structure in a file."""

    kind: str
    begin: int
    layout: Layout

    def read(self, data: bytes | bytearray, field: str) -> int:
        """A field's value."""
        form, offset = self.layout[field]
        value: int = struct.unpack_from(f"<{form}", data, self.begin + offset)[0]
        return value

    def write(self, data: bytearray, field: str, value: int) -> None:
        """It sets a field to so many bits of a value as it has."""
        form, offset = self.layout[field]
        size = struct.calcsize(form)
        data[self.begin + offset : self.begin + offset + size] = (value % (1 << 8 * size)).to_bytes(size, "little")


class Sample:
    """An intact file, and where its structures are."""

    def __init__(self, data: bytes, entries: tuple[int, ...] = ()) -> None:
        """`entries` are addresses, or offsets in sections, of code that leaves a mark when it is run."""
        self.data = data
        self.entries = entries
        self.records: dict[str, list[Record]] = {}
        for record in self._found():
            self.records.setdefault(record.kind, []).append(record)

    def _found(self) -> Iterator[Record]:
        header = Record("header", 0, HEADER)
        yield header
        for kind, size, layout in (("segment", 56, SEGMENT), ("section", 64, SECTION)):
            begin = header.read(self.data, f"{kind}s_at")
            for number in range(header.read(self.data, f"{kind}s")):
                record = Record(kind, begin + number * size, layout)
                yield record
                if kind == "section":
                    yield from self._within(record)

    def _within(self, section: Record) -> Iterator[Record]:
        kinds: dict[int, tuple[str, int, Layout]] = {
            2: ("symbol", 24, SYMBOL), 11: ("symbol", 24, SYMBOL), 4: ("relocation", 24, RELOCATION),
            6: ("tag", 16, TAG),
        }  # fmt: skip
        kind = section.read(self.data, "kind")
        if kind not in kinds:
            return
        name, size, layout = kinds[kind]
        begin = section.read(self.data, "offset")
        for number in range(min(section.read(self.data, "bytes") // size, 4096)):
            yield Record(name, begin + number * size, layout)

    def mutated(self, random: Random) -> bytes:
        """The file with one change or a few."""
        data = bytearray(self.data)
        ways: tuple[Callable[[bytearray, Random], None], ...] = (
            self._field, self._field, self._field, self._field, self._hook, self._rename, self._bytes, self._cut,
        )  # fmt: skip
        for _ in range(random.choice((1, 1, 1, 2, 3, 6))):
            random.choice(ways)(data, random)
        return bytes(data)

    def _record(self, random: Random, *kinds: str) -> Record:
        return random.choice(
            self.records[random.choice([kind for kind in kinds or self.records if kind in self.records])]
        )

    def _field(self, data: bytearray, random: Random) -> None:
        record = self._record(random)
        field = random.choice(list(record.layout))
        if record.begin + 64 > len(data):
            return
        other = random.choice(self.records[record.kind])
        values = [
            random.choice(LIKELY.get((record.kind, field), NUMBERS)), random.choice(NUMBERS),
            record.read(data, field) + random.choice((-8, -1, 1, 8)), other.read(self.data, field),
            random.choice(self.entries or NUMBERS),
        ]  # fmt: skip
        record.write(data, field, random.choice(values))

    def _hook(self, data: bytearray, random: Random) -> None:
        """It makes a loader, if one is asked, enter code that leaves a mark."""
        if not self.entries or len(data) < len(self.data):
            return
        entry = random.choice(self.entries)
        record = self._record(random, "relocation", "tag", "symbol")
        if record.kind == "relocation":
            record.write(data, "type", 37)
            record.write(data, "symbol", 0)
            record.write(data, "addend", entry)
        elif record.kind == "tag":
            record.write(data, "tag", random.choice((12, 13)))
            record.write(data, "value", entry)
        else:
            record.write(data, "info", 0x1A)
            record.write(data, "value", entry)

    def _rename(self, data: bytearray, random: Random) -> None:
        """It gives a section another name."""
        header = self.records["header"][0]
        names = self.records["section"][header.read(self.data, "names")]
        if len(data) < len(self.data):
            return
        begin, size = names.read(data, "offset"), names.read(data, "bytes")
        if begin + size > len(data) or size > 1 << 20:
            return
        table = bytes(data[begin : begin + size]) + random.choice(SECTION_NAMES).encode() + b"\0"
        self._record(random, "section").write(data, "name", size)
        names.write(data, "offset", len(data))
        names.write(data, "bytes", len(table))
        data += table

    def _bytes(self, data: bytearray, random: Random) -> None:
        begin = random.randrange(max(len(data), 1))
        size = random.choice((1, 1, 4, 16, 256))
        data[begin : begin + size] = random.randbytes(min(size, len(data) - begin))

    def _cut(self, data: bytearray, random: Random) -> None:
        if random.random() < 0.2:
            del data[random.randrange(max(len(data), 1)) :]
        else:
            begin = random.randrange(max(len(data), 1))
            data[begin:begin] = data[: random.choice((8, 64, 4096))]
