"""Traits of a kernel read from its PTX without running it. Its cubin tells what it may not do.

A stranger writes a part of this text, by inline PTX. It is read once, as tokens: comments and strings are taken out,
bodies are parted into instructions, and every question is asked of these. All of it takes time in proportion to the
text, whatever that is.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter
from typing import NamedTuple

from fitness.words import CLOCK, HELD_ADDRESS, OWN_ADDRESS, PLACE

_ASIDE = re.compile(r'//[^\n]*+|/\*(?:[^*]++|\*(?!/))*+(?:\*/)?|"(?P<string>[^"\n]*+)"?')
"""Comments and strings, whole or never closed."""
_BRACE = re.compile(r"(?P<initial>=\s*+\{)|[{}]")
_AHEAD = re.compile(r"(?:[\s{}]++|(?P<place>\.loc\b[^\n]*+)|[\w$]++:(?!:))*+(?:@!?\s*+%?[\w$]++\s++)?+")
"""Text in front of an instruction: braces of scopes, places in files, labels, a predicate."""
_OPCODE = re.compile(r"[a-z]\w*+(?:\s*+\.[\w:]++)*+")
_FILE = re.compile(r'\.file\s++(\d++)\s++"(\d++)"')
_PLACE = re.compile(r"\.loc\s++(\d++)(?:.*\binlined_at\s++(\d++))?")
_VECTOR = re.compile(r"v([248])")
_ELEMENT = re.compile(r"[bfsu](8|16|32|64|128)")
_BARRIER = re.compile(r"(?:bar|barrier)\.(?:cta\.)?(?:sync|red|arrive)\b|mbarrier\.")
_PRODUCTS = ("wgmma.mma_async", "wmma.mma", "mma.sync", "mma.sp", "tcgen05.mma")
_MULTIPLIED = frozenset((
    "f64", "f32", "tf32", "bf16", "f16", "e4m3", "e5m2", "e3m2", "e2m3", "e2m1", "s8", "u8", "s4", "u4", "b1", "s32",
))  # fmt: skip
"""Types that instructions of tensor cores name."""
_ARITHMETIC = frozenset(("add", "sub", "mul", "fma", "min", "max", "ex2", "tanh", "neg", "abs"))
_NARROW = ("bf16x2", "f16x2", "bf16", "f16")
_DIGITS = {
    "fp64": 53, "f64": 53, "fp32": 24, "f32": 24, "tf32": 11, "fp16": 11, "f16": 11, "bf16": 8,
}  # fmt: skip
"""Digits of the significand of each type; others have fewer."""
_CLOCK = re.compile(r"%(?:clock(?:64|_hi)?|globaltimer(?:_lo|_hi)?|pm\d+(?:_64)?)(?![\w$])")
_WHERE = re.compile(r"%(?:n?smid|warpid|gridid|envreg\d+|current_graph_exec)(?![\w$])")
_FUNCTION = re.compile(r"\.(?:entry|func)\b\s*+(?:\([^()]*+\)\s*+)?+([\w$]++)")
_CALLED = re.compile(r"call(?![\w$])|mov\.|cvta\.|st\.(?:param|local)|ret(?![\w$])")
"""Instructions that handle the address of a function that is to be called."""
_POLICY = re.compile(r"(?:createpolicy|discard|applypriority)\.|.*L[12]::(?:evict_(?:last|first|unchanged)|cache_hint)")


class PtxInstruction(NamedTuple):
    """One instruction, without its label and predicate."""

    opcode: str
    """Operation with its modifiers and without blanks: `ld.global.v4.f32`."""
    operands: str
    place: str
    """The last `.loc` in front of it, in the same body; empty: there is none."""
    body: int
    """The number of its entry or function: registers of one have nothing to do with those of another."""

    @property
    def parts(self) -> list[str]:
        """The opcode's name and its modifiers."""
        return self.opcode.split(".")


FLAGGED: Mapping[str, Callable[[PtxInstruction], bool]] = {
    CLOCK: lambda i: _CLOCK.search(i.operands) is not None,
    PLACE: lambda i: _WHERE.search(i.operands) is not None,
}
"""By what one instruction is told."""
UNCOMMON: Mapping[str, Callable[[PtxInstruction], bool]] = {
    "sleep": lambda i: i.opcode.startswith("nanosleep"),
    "cache policy": lambda i: _POLICY.match(i.opcode) is not None,
    "launch dependence": lambda i: i.opcode.startswith("griddepcontrol"),
    "trap": lambda i: i.opcode in ("trap", "brkpt"),
}
"""Likewise, what few kernels need and none is suspected for."""
DEVICE_ADDRESSES = range(2**32, 2**49)
"""Numbers that are taken for addresses where they reach the brackets of a load or store; offsets are smaller."""
_OPERAND = re.compile(r"%?[A-Za-z_$][\w$]*+")
_ADDRESSING = re.compile(r"(?:mov|cvta(?:\.to)?(?:\.global)?|add|sub|or|mad\.(?:wide|lo)|shl)\.[usb]\d+")
_NUMBER = re.compile(
    r"\s*+(?:0[xX](?P<x>[0-9a-fA-F]++)|0[bB](?P<b>[01]++)|0(?P<o>[0-7]++)|(?P<d>0|[1-9]\d{0,19}+))U?\s*+", re.ASCII
)
"""An integer of PTX, of whatever base; no longer a decimal than 64 bits have."""
_BASES = {"x": 16, "b": 2, "o": 8, "d": 10}
_BASE = re.compile(r"\[\s*+(%?[\w$]++)")


@dataclass(frozen=True)
class Traits:
    """Traits of the code of all kernels of a file: how it accesses memory, computes and cooperates."""

    access_bytes: int
    """Widest load or store of global memory by one thread."""
    vectors: bool
    """Several elements in one such access, wherever it stands: a thread often makes a single one, outside all loops,
    and what is left to it at the end of an array is a loop of scalar ones."""
    async_copies: bool
    """cp.async"""
    bulk_copies: bool
    """cp.async.bulk, with tensor maps or without."""
    tensor_cores: bool
    atomics: bool
    warp: bool
    """Shuffles, votes, matches and reductions within a warp."""
    block: bool
    """Barriers of a block."""
    cluster: bool
    environment: bool
    """Reads a word that the driver keeps for a launch, such as the address of a cooperative launch's barrier."""
    shared: bool
    """Reads or writes shared memory."""
    tensor_types: tuple[str, ...]
    """Types that tensor cores multiply: tf32, bf16, f16, e4m3, s8, f64 and the like."""
    scalar_types: tuple[str, ...]
    """Narrow types of ordinary arithmetic: f16, bf16."""


# --- reading ---------------------------------------------------------------------------------------------------------


def instructions(ptx: str) -> list[PtxInstruction]:
    """Return the instructions of all entries and functions, in their order."""
    return list(_instructions(_without_asides(ptx)[0]))


def _without_asides(ptx: str) -> tuple[str, list[str]]:
    """The text without its comments, and its strings, in whose places their numbers stand."""
    strings: list[str] = []

    def put(match: re.Match[str]) -> str:
        if match["string"] is None:
            return " "
        strings.append(match["string"])
        return f'"{len(strings) - 1}"'

    return _ASIDE.sub(put, ptx), strings


def _instructions(code: str) -> Iterator[PtxInstruction]:
    for number, body in enumerate(_bodies(code)):
        place = ""
        for statement in body.split(";"):
            ahead = _AHEAD.match(statement)
            assert ahead is not None, "it matches the empty text too"
            place = ahead["place"] or place
            if opcode := _OPCODE.match(statement, ahead.end()):
                yield PtxInstruction("".join(opcode[0].split()), statement[opcode.end() :].strip(), place, number)


def _bodies(code: str) -> Iterator[str]:
    """The text between the outer braces of entries and functions; not the initial values of variables."""
    depth, begin, initial = 0, 0, False
    for brace in _BRACE.finditer(code):
        depth = max(depth + (-1 if brace[0] == "}" else 1), 0)
        if brace[0] != "}" and depth == 1:
            begin, initial = brace.end(), brace["initial"] is not None
        elif brace[0] == "}" and depth == 0 and begin:
            if not initial:
                yield code[begin : brace.start()]
            begin = 0
    if depth and not initial:
        yield code[begin:]


# --- traits ----------------------------------------------------------------------------------------------------------


def traits(ptx: str) -> Traits:
    """The traits of all that entries and functions contain."""
    found = instructions(ptx)
    opcodes = {i.opcode: i.parts for i in found}
    of_global = [parts for parts in opcodes.values() if parts[0] in ("ld", "st") and "global" in parts]
    of_memory = {opcode: parts for opcode, parts in opcodes.items() if parts[0] in ("ld", "st", "atom", "red")}
    products = [parts for opcode, parts in opcodes.items() if opcode.startswith(_PRODUCTS)]
    return Traits(
        access_bytes=max((_access_bytes(parts) for parts in of_global), default=0),
        vectors=any(_elements(parts) > 1 or _element_bits(parts) == 128 for parts in of_global),
        async_copies=_any(opcodes, "cp.async.ca.", "cp.async.cg."),
        bulk_copies=_any(opcodes, "cp.async.bulk", "cp.reduce.async.bulk"),
        tensor_cores=bool(products),
        atomics=any(parts[0] in ("atom", "red") and "shared" not in opcode for opcode, parts in of_memory.items()),
        warp=_any(opcodes, "shfl.", "vote.", "match.", "redux.", "bar.warp."),
        block=any(_BARRIER.match(opcode) for opcode in opcodes),
        cluster=_any(opcodes, "barrier.cluster", "mapa.") or any("shared::cluster" in opcode for opcode in of_memory),
        environment=any("%envreg" in i.operands for i in found),
        shared=any(part.startswith("shared") for parts in of_memory.values() for part in parts),
        tensor_types=tuple(sorted({name for parts in products for name in _tensor_types(parts)})),
        scalar_types=tuple(sorted({name for parts in opcodes.values() for name in _scalar_types(parts)})),
    )


def _any(opcodes: Iterable[str], *beginnings: str) -> bool:
    return any(opcode.startswith(beginnings) for opcode in opcodes)


def _access_bytes(parts: Sequence[str]) -> int:
    return _element_bits(parts) // 8 * _elements(parts)


def _element_bits(parts: Sequence[str]) -> int:
    return next((int(match[1]) for part in parts if (match := _ELEMENT.fullmatch(part))), 0)


def _elements(parts: Sequence[str]) -> int:
    return next((int(match[1]) for part in parts if (match := _VECTOR.fullmatch(part))), 1)


def _tensor_types(parts: Sequence[str]) -> Iterator[str]:
    types = [part for part in parts if part in _MULTIPLIED]
    if parts[0] == "wmma" and len(types) == 2:  # d and c alone: the operands are f16
        yield "f16"
    elif parts[0] == "tcgen05":
        yield from (part.removeprefix("kind::") for part in parts if part.startswith("kind::"))
    else:  # d, a, b, c; wgmma: d, a, b
        yield from types[1:3]


def _scalar_types(parts: Sequence[str]) -> Iterator[str]:
    if parts[0] in _ARITHMETIC:
        yield from [part.removesuffix("x2") for part in parts if part in _NARROW][:1]


def lower_precision(found: Traits, dtype: str) -> tuple[str, ...]:
    """The computations in types with fewer digits than the task's own, in words.

    Not wrong as such: three TF32 products make an fp32 one. Whether it is accurate enough is for the oracle to say.
    """
    digits = _DIGITS[dtype]
    tensor = [f"{t} tensor cores" for t in found.tensor_types if _DIGITS.get(t, 0) < digits]
    return (*tensor, *(f"{t} arithmetic" for t in found.scalar_types if _DIGITS[t] < digits))


# --- what few kernels need -------------------------------------------------------------------------------------------


class Rare(NamedTuple):
    """Features that few kernels need, in words."""

    flagged: tuple[str, ...]
    """Why a kernel is suspicious though legal; see `fitness.words`."""
    uncommon: tuple[str, ...]
    """Features that raise no suspicion, for readers of the facts alone."""


def rare(ptx: str, *, file: str | None = None) -> Rare:
    """The features in this that few kernels need.

    With `file`, for PTX that tells lines: only what stands in this file or in a function of a header that it calls
    itself. What headers do on their own account (barriers that sleep until a time is up) is left out.
    """
    code, strings = _without_asides(ptx)
    chosen = _chosen(code, strings, file)
    own = [OWN_ADDRESS] * _takes_own_address(set(_FUNCTION.findall(code)), chosen)
    flagged = (*_named(FLAGGED, chosen), *own, *[HELD_ADDRESS] * _has_absolute(chosen))
    return Rare(flagged, tuple(_named(UNCOMMON, chosen)))


def _named(tests: Mapping[str, Callable[[PtxInstruction], bool]], found: Sequence[PtxInstruction]) -> Iterator[str]:
    return (name for name, tells in tests.items() if any(map(tells, found)))


def _chosen(code: str, strings: Sequence[str], file: str | None) -> list[PtxInstruction]:
    """The instructions that a kernel answers for, as far as the PTX tells."""
    found = list(_instructions(code))
    if file is None:
        return found
    numbers = {number for number, at in _FILE.findall(code) if strings[int(at)].rpartition("/")[2] == file}
    own, called = _by_origin(found, numbers)
    return own + [instruction for instruction in called if not _guards(instruction)]


def _guards(instruction: PtxInstruction) -> bool:
    """Whether headers put this into the code of their callers on their own account.

    A barrier of the grid checks that there is one to wait at, and asks where its words lie. It is no choice of the
    kernel's, unless it stands in its own file.
    """
    return instruction.opcode in ("trap", "brkpt") or "%envreg" in instruction.operands


def _takes_own_address(functions: Collection[str], found: Sequence[PtxInstruction]) -> bool:
    """Whether the address of a function of the kernel's is used for more than to call it."""
    if not any(set(_OPERAND.findall(i.operands)) & set(functions) for i in found):
        return False
    for own in _by_body(found):
        taken = _derived(functions, _moves(own))
        others = (i for i in own if not _CALLED.match(i.opcode))
        if any(not taken.keys().isdisjoint(_OPERAND.findall(i.operands)) for i in others):
            return True
    return False


def written(ptx: str, variables: Collection[str]) -> str | None:
    """Return one of these variables that code plainly writes to; None where it shows none.

    For a clear word to who wrote it, no proof.
    """
    for own in _by_body(instructions(ptx) if variables else ()):
        # Only what the compiler made names each register once.
        moves = [(to, whence) for to, whence in _moves(filter(_addresses, own)) if to.startswith("%")]
        origins = _derived(variables, moves)
        for instruction in own:
            if instruction.parts[0] in ("st", "atom", "red"):
                for base in _BASE.findall(instruction.operands):
                    if base in origins:
                        return origins[base]
    return None


def tells_places(ptx: str) -> bool:
    """Whether an instruction says which line it comes from; where no compiler was asked for that, a kernel says so."""
    return any(instruction.place for instruction in instructions(ptx))


def _by_origin(
    found: Iterable[PtxInstruction], numbers: Collection[str]
) -> tuple[list[PtxInstruction], list[PtxInstruction]]:
    """Those that came from files of these numbers, and those from functions of others that these call."""
    own: list[PtxInstruction] = []
    called: list[PtxInstruction] = []
    for instruction in found:
        place = _PLACE.match(instruction.place)
        if place is None or place[1] in numbers:
            own.append(instruction)
        elif place[2] in numbers:
            called.append(instruction)
    return own, called


def _has_absolute(found: Sequence[PtxInstruction]) -> bool:
    """Whether something is read or written at an address that the code holds as a number."""
    for own in _by_body(found):
        moves = _moves(filter(_addresses, own))
        addresses = _derived({to for to, whence in moves if _last_number(whence) in DEVICE_ADDRESSES}, moves)
        if any(base in addresses for i in own for base in _BASE.findall(i.operands)):
            return True
    return False


def _by_body(found: Iterable[PtxInstruction]) -> Iterator[list[PtxInstruction]]:
    """The instructions of each entry or function that follow each other."""
    return (list(body) for _, body in groupby(found, key=attrgetter("body")))


def _addresses(instruction: PtxInstruction) -> bool:
    """Whether an instruction may make an address of another one."""
    return bool(_ADDRESSING.fullmatch(instruction.opcode))


def _moves(found: Iterable[PtxInstruction]) -> list[tuple[str, str]]:
    """Where instructions put their results, and what they make them of; not where they read memory."""
    parted = (i.operands.partition(",") for i in found)
    return [(to.strip(), whence) for to, _, whence in parted if "[" not in whence]


def _last_number(operands: str) -> int:
    """The last operand as a number; -1 where it is none."""
    match = _NUMBER.fullmatch(operands.rpartition(",")[2])
    return int(match[match.lastgroup or "d"], _BASES[match.lastgroup or "d"]) if match else -1


def _derived(names: Collection[str], moves: Iterable[tuple[str, str]]) -> Mapping[str, str]:
    """These variables and registers, and all that addresses in them are added to or copied into: each with one of them.

    One that an address of it may come from.
    """
    into: dict[str, list[str]] = {}
    for to, whence in moves:
        for operand in set(_OPERAND.findall(whence)):
            into.setdefault(operand, []).append(to)
    origins, waiting = {name: name for name in names}, list(names)
    while waiting:
        whence = waiting.pop()
        for name in into.get(whence, ()):
            if name not in origins:
                origins[name] = origins[whence]
                waiting.append(name)
    return origins
