"""The linked object of a CPU kernel, taken apart into what `runner.cpp` maps: no loader decides about any of it.

A dynamic loader runs code while it loads (constructors, resolvers of indirect functions) and finds its orders in tables
that a linker makes of whatever sections an object file has. So nothing loads a candidate. Everything in the linked file
that would tell a loader what to do is held here against a list of what a kernel needs, and the runner gets the few
orders that are left as numbers: which bytes to map where, and which words of them hold which addresses. It follows them
without running or believing anything in the file, and calls into it only when it has given up everything else.
"""

from __future__ import annotations

import mmap
import platform
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from fitness.cpu.gate import ON_CPU, Allowance, demangled
from operators.identity import digest

MAX_FILE_BYTES = 64 << 20
MAX_RELOCATIONS = MAX_SYMBOLS = 1 << 16
MAX_HEADERS, MAX_TAGS = 16, 64
MAX_NAME_BYTES = 1 << 16
"""Names of templates are long."""
MAX_ALIGNMENT = 2 << 20
LOCK_BYTES = 4096
"""Most memory of named critical sections."""
READ, WRITE, EXECUTE = 1, 2, 4
"""Protections as `mmap` has them."""
_HEADER, _SEGMENT, _TAG = struct.Struct("<2HI3QI6H"), struct.Struct("<2I6Q"), struct.Struct("<qQ")
_RELOCATION, _SYMBOL = struct.Struct("<2Qq"), struct.Struct("<I2BH2Q")
_SHARED_OBJECT = 3
_LOAD, _DYNAMIC, _LOCAL, _RELRO = 1, 2, 7, 0x6474E552
SEGMENTS = {_LOAD, _DYNAMIC, _LOCAL, _RELRO, 4, 0x6474E550, 0x6474E551, 0x6474E553}
"""The others: NOTE, GNU_EH_FRAME, GNU_STACK, GNU_PROPERTY. Not INTERP."""
PROTECTIONS = {4: READ, 5: READ | EXECUTE, 6: READ | WRITE}
"""Protections of loaded segments by their flags: none is both written and executed."""
_NEEDED, _PLT_BYTES, _HASH, _STRINGS, _SYMBOLS, _RELA, _RELA_BYTES = 1, 2, 4, 5, 6, 7, 8
_STRING_BYTES, _PLT_RELA = 10, 23
TAGS: dict[int, frozenset[int] | None] = {
    _NEEDED: None, _PLT_BYTES: None, 3: None, _HASH: None, _STRINGS: None, _SYMBOLS: None, _RELA: None,
    _RELA_BYTES: None, 9: frozenset({24}), _STRING_BYTES: None, 11: frozenset({24}), 20: frozenset({_RELA}),
    _PLT_RELA: None, 24: None, 30: frozenset({8}), 0x6FFFFFF0: None, 0x6FFFFFF9: None, 0x6FFFFFFB: frozenset({1}),
    0x6FFFFFFE: None, 0x6FFFFFFF: None,
}  # fmt: skip
"""Entries for the loader, with the values they may have (None: any): names, symbols, relocations, immediate binding and
versions. Not among them: anything to run at the beginning or end, text relocations, static thread-local storage."""
NEEDED = frozenset((
    "libm.so.6", "libmvec.so.1", "libgomp.so.1", "libc.so.6", "libgcc_s.so.1", "libstdc++.so.6",
    "ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1",
))  # fmt: skip
"""Libraries that the runner itself is linked with."""


@dataclass(frozen=True)
class Machine:
    """Numbers of a processor's ELF format."""

    number: int
    relative: int
    """The relocation to an address in the object itself."""
    symbolic: frozenset[int]
    """Those to a symbol: a pointer, an entry of the offset table, one of the linkage table."""
    module: int
    """The one to the number that a loader gives an object for its thread-local data."""


MACHINES = {
    "x86_64": Machine(62, 8, frozenset((1, 6, 7)), 16),
    "aarch64": Machine(183, 1027, frozenset((257, 1025, 1026)), 1028),
}


class Refused(Exception):
    """A linked object holds what a kernel may not; in words."""


@dataclass(frozen=True)
class Segment:
    """Bytes that are mapped together."""

    address: int
    """Address from the beginning of the image, like every address here."""
    bytes: int
    offset: int
    """Offset in the file."""
    file_bytes: int
    """The rest is zero."""
    protection: int

    @property
    def end(self) -> int:
        """The first address behind it."""
        return self.address + self.bytes

    @property
    def mapped_end(self) -> int:
        """Where in the file that ends which can be read in its pages; behind what may be written there are zeros."""
        end = self.offset + self.file_bytes
        return end if self.protection & WRITE else _page_up(end)


@dataclass(frozen=True)
class Image:
    """Orders for the runner."""

    bytes: int
    alignment: int
    segments: tuple[Segment, ...]
    sealed: int
    """Address below which nothing stays writable once its relocations are done."""
    imports: tuple[str, ...]
    relocations: tuple[tuple[int, int, int], ...]
    """(address of a word, number of its import or -1 for the image itself, what is added)."""
    launches: tuple[int, ...]
    """Addresses of the launch functions."""
    block_bytes: int = 0
    """Size of its thread-local variables, which are zero at first; the runner does not map them."""
    digest: str = ""
    """Digest of all orders and of every byte that they map: equal digests mean the same program, wherever it comes
    from."""

    def words(self) -> list[int]:
        """The orders as `runner.cpp` reads them."""
        words = [self.bytes, self.alignment, self.sealed, len(self.segments)]
        for segment in self.segments:
            words += [segment.address, segment.bytes, segment.offset, segment.file_bytes, segment.protection]
        words.append(len(self.imports))
        for name in self.imports:
            text = name.encode("ascii")
            padded = text.ljust(-(-len(text) // 8) * 8, b"\0")
            words += [len(text), *struct.unpack(f"<{len(padded) // 8}q", padded)]
        words.append(len(self.relocations))
        for relocation in self.relocations:
            words += relocation
        return [*words, len(self.launches), *self.launches]


def image(data: bytes, launches: int, allowance: Allowance = ON_CPU) -> Image:
    """The orders for a linked object with so many launches. Raises Refused."""
    if len(data) > MAX_FILE_BYTES:
        raise Refused(f"its shared object has more than {MAX_FILE_BYTES >> 20} MiB")
    linked = _Linked(data, allowance)
    linked.check_libraries()
    relocations = tuple(linked.relocations())
    made = Image(
        bytes=_page_up(linked.segments[-1].end),
        alignment=linked.alignment,
        segments=tuple(linked.segments),
        sealed=linked.sealed(),
        imports=tuple(linked.imports),
        relocations=relocations,
        launches=tuple(linked.launch(f"evo_launch_{number}") for number in range(launches)),
        block_bytes=linked.block_bytes,
    )
    mapped = (data[_page_down(segment.offset) : segment.mapped_end] for segment in made.segments)
    return replace(made, digest=digest("image", *made.words(), *mapped))


def _page_up(address: int) -> int:
    return -(-address // mmap.PAGESIZE) * mmap.PAGESIZE


def _page_down(address: int) -> int:
    return address // mmap.PAGESIZE * mmap.PAGESIZE


class _Linked:
    """A shared object's bytes. Its methods raise Refused where they are not what the linker makes of a kernel."""

    def __init__(self, data: bytes, allowance: Allowance) -> None:
        self._data = data
        self._allowance = allowance
        self._machine = MACHINES[platform.machine()]
        self.imports: dict[str, int] = {}
        """Names with their numbers, as relocations ask for them."""

    @cached_property
    def _headers(self) -> list[tuple[int, ...]]:
        if self._data[:6] != b"\x7fELF\x02\x01":
            raise Refused("its shared object is none")
        kind, machine, _, _, begin, _, _, _, size, count, *_ = self._unpacked(_HEADER, 16)
        if kind != _SHARED_OBJECT or machine != self._machine.number:
            raise Refused("its shared object is none of this machine")
        if size != _SEGMENT.size or not 0 < count <= MAX_HEADERS:
            raise Refused(f"its shared object has {count} segments")
        headers = [self._unpacked(_SEGMENT, begin + number * size) for number in range(count)]
        for kind, flags, *_ in headers:
            if kind not in SEGMENTS:
                raise Refused(f"its shared object has a segment of type {kind:#x}")
            if kind != _LOAD and flags & 1:
                raise Refused("its shared object asks for memory that is both written and executed")
        return headers

    @cached_property
    def segments(self) -> list[Segment]:
        """The loaded segments in the order of addresses, without overlap, one of them writable at most."""
        found: list[Segment] = []
        for kind, flags, offset, address, _, file_bytes, size, _ in self._headers:
            if kind != _LOAD or not size:
                continue
            below = _page_up(found[-1].end) if found else 0
            fits = file_bytes <= size and offset + file_bytes <= len(self._data) and address + size <= 1 << 32
            if not fits or _page_down(address) < below or (address - offset) % mmap.PAGESIZE:
                raise Refused("the segments of its shared object do not fit")
            if flags not in PROTECTIONS:
                raise Refused("its shared object has memory that is both written and executed")
            if file_bytes < size and flags != 6:
                raise Refused("its shared object has room in a segment that nothing may write")
            found.append(Segment(address, size, offset, file_bytes, PROTECTIONS[flags]))
        if not found or sum(bool(segment.protection & WRITE) for segment in found) > 1:
            raise Refused("its shared object has several writable segments")
        return found

    @property
    def alignment(self) -> int:
        """The alignment of the image's beginning, in bytes."""
        most = max(header[7] for header in self._headers if header[0] == _LOAD)
        if most > MAX_ALIGNMENT or most & (most - 1):
            raise Refused(f"it aligns data to {most} bytes; at most {MAX_ALIGNMENT} are allowed")
        return max(most, mmap.PAGESIZE)

    @property
    def block_bytes(self) -> int:
        """Bytes of thread-local data."""
        found = [header for header in self._headers if header[0] == _LOCAL]
        if not found:
            return 0
        if len(found) > 1 or not self._allowance.block_memory:
            raise Refused("its shared object has thread-local data")
        *_, file_bytes, size, alignment = found[0]
        if file_bytes or size > MAX_FILE_BYTES or alignment > mmap.PAGESIZE:
            raise Refused("its shared object has thread-local data that begin with a value, are too many, or aligned")
        return size

    def sealed(self) -> int:
        """Where the part ends that is read-only after relocation; behind it is data that a kernel may write.

        Locks alone, which begin as zero, unless it is allowed more.
        """
        writable = self._writable
        if writable is None:
            return 0
        ends = [header[3] + header[6] for header in self._headers if header[0] == _RELRO]
        end = max(ends, default=writable.address)
        if end >= writable.end:
            return _page_up(writable.end)
        kept = writable.end - end
        begins_as_zero = writable.address + writable.file_bytes <= end
        most = self._allowance.data_bytes or (LOCK_BYTES if begins_as_zero else 0)
        if end % mmap.PAGESIZE or kept > most:
            raise Refused(f"it keeps {kept} bytes of data between calls; make it const, local, or a [[buffer]]")
        return end

    @property
    def _writable(self) -> Segment | None:
        return next((segment for segment in self.segments if segment.protection & WRITE), None)

    # --- what a loader would read ---------------------------------------------------------------------------------

    @cached_property
    def _tags(self) -> dict[int, int]:
        return {tag: value for tag, value in self._entries if tag != _NEEDED}

    @cached_property
    def _entries(self) -> list[tuple[int, int]]:
        places = [(header[2], header[5] // _TAG.size) for header in self._headers if header[0] == _DYNAMIC]
        if len(places) != 1:
            raise Refused("its shared object has no list for the loader, or several")
        entries: list[tuple[int, int]] = []
        offset, count = places[0]
        for number in range(count):
            tag, value = self._unpacked(_TAG, offset + number * _TAG.size)
            if tag == 0:
                break
            allowed = TAGS.get(tag, frozenset())
            twice = tag != _NEEDED and any(tag == other for other, _ in entries)
            if (allowed is not None and value not in allowed) or twice or number == MAX_TAGS:
                raise Refused(f"it would have code run, or more, when it is loaded (entry {tag:#x} for the loader)")
            entries.append((tag, value))
        return entries

    def check_libraries(self) -> None:
        """It raises Refused where a library is needed that the runner lacks."""
        for tag, value in self._entries:
            if tag == _NEEDED and self._name(value) not in NEEDED:
                raise Refused(f"it needs the library `{self._name(value)}`")

    def relocations(self) -> Iterator[tuple[int, int, int]]:
        """(address of a word, number of the import or -1, what is added), each inside of the writable segment."""
        writable = self._writable
        for table, size in ((_RELA, _RELA_BYTES), (_PLT_RELA, _PLT_BYTES)):
            if table not in self._tags:
                continue
            count, rest = divmod(self._tags.get(size, 0), _RELOCATION.size)
            if rest or count > MAX_RELOCATIONS:
                raise Refused(f"its shared object has {count} relocations; at most {MAX_RELOCATIONS} are allowed")
            data = self._at(self._tags[table], count * _RELOCATION.size)
            for place, info, addend in _RELOCATION.iter_unpack(data):
                if writable is None or not writable.address <= place <= writable.address + writable.file_bytes - 8:
                    raise Refused(f"it has a relocation outside of constant data, at {place:#x}")
                kind, number = info & 0xFFFFFFFF, info >> 32
                if kind == self._machine.module and number == 0 and self.block_bytes:
                    continue  # there is no loader to number it, and the runner has no use for a number
                yield (place, *self._target(kind, number, addend))

    def _target(self, kind: int, number: int, addend: int) -> tuple[int, int]:
        if kind == self._machine.relative and number == 0:
            return -1, self._inside(addend)
        if kind not in self._machine.symbolic:
            raise Refused(f"it would have code run when it is loaded (a relocation of type {kind})")
        name, symbol = self._symbol(number)
        if symbol[3] == 0:
            found = None if addend else self._allowance.imports(name)
            if found is None:
                raise Refused(f"it calls `{demangled(name)}`, which no kernel may")
            return self.imports.setdefault(found, len(self.imports)), 0
        return -1, self._inside(self._defined(symbol) + addend)

    def _inside(self, address: int) -> int:
        if not 0 <= address <= self.segments[-1].end:
            raise Refused(f"it has a relocation to {address:#x}, which is outside of it")
        return address

    def launch(self, name: str) -> int:
        """The address of one launch function."""
        address = self._defined(self._exported[name]) if name in self._exported else -1
        if not any(s.protection & EXECUTE and s.address <= address < s.end for s in self.segments):
            raise Refused(f"its shared object lacks the function `{name}`")
        return address

    @cached_property
    def _exported(self) -> dict[str, Sequence[int]]:
        if _HASH not in self._tags:
            raise Refused("its shared object lacks a table of its symbols")
        _, count = struct.unpack("<2I", self._at(self._tags[_HASH], 8))
        if count > MAX_SYMBOLS:
            raise Refused(f"its shared object has {count} symbols; at most {MAX_SYMBOLS} are allowed")
        return dict(self._symbol(number) for number in range(count))

    def _symbol(self, number: int) -> tuple[str, Sequence[int]]:
        if _SYMBOLS not in self._tags:
            raise Refused("its shared object lacks a table of its symbols")
        symbol = _SYMBOL.unpack(self._at(self._tags[_SYMBOLS] + number * _SYMBOL.size, _SYMBOL.size))
        return self._name(symbol[0]), symbol

    def _defined(self, symbol: Sequence[int]) -> int:
        _, info, _, section, value, _ = symbol
        if info & 15 > 2 or not 0 < section < 0xFF00:
            raise Refused("it has a symbol that only a loader could place: thread-local, indirect or common")
        return self._inside(value)

    @cached_property
    def _strings(self) -> bytes:
        return self._at(self._tags.get(_STRINGS, -1), self._tags.get(_STRING_BYTES, 0))

    def _name(self, offset: int) -> str:
        end = self._strings.find(b"\0", offset, offset + MAX_NAME_BYTES)
        name = self._strings[offset:end]
        if end < 0 or not name.isascii():
            raise Refused(f"its shared object has a name of over {MAX_NAME_BYTES} bytes, or in no script")
        return name.decode("ascii")

    def _at(self, address: int, size: int) -> bytes:
        """Bytes of the file by their address."""
        for segment in self.segments:
            if segment.address <= address and address + size <= segment.address + segment.file_bytes:
                begin = segment.offset + address - segment.address
                return self._data[begin : begin + size]
        raise Refused(f"its shared object has a table at {address:#x}, which is outside of it")

    def _unpacked(self, layout: struct.Struct, offset: int) -> tuple[int, ...]:
        if offset + layout.size > len(self._data):
            raise Refused("its shared object is cut short")
        return layout.unpack_from(self._data, offset)
