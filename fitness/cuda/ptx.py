"""What a kernel's PTX tells without running it: how it goes about its work. What it may not do its cubin tells."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from fitness.flags import CLOCK, HELD_ADDRESS, OWN_ADDRESS, PLACE

_COMMENT = re.compile(r"//[^\n]*")
_ACCESS = re.compile(r"\b(?:ld|st)(?P<modifiers>(?:\.\w+(?:::\w+)*)*)")
_VECTOR = re.compile(r"\.v([248])\b")
_ELEMENT = re.compile(r"\.[bfsu](8|16|32|64|128)\b")
_MMA = re.compile(r"\b(wmma|mma|wgmma|tcgen05)\.(?:mma|mma_async|sync|sp)\b[\w.:]*")
_TYPE = re.compile(r"\.(f64|f32|tf32|bf16|f16|e4m3|e5m2|e3m2|e2m3|e2m1|s8|u8|s4|u4|b1|s32)\b")
_KIND = re.compile(r"\.kind::(\w+)")
_NARROW = re.compile(r"\b(?:add|sub|mul|fma|min|max|ex2|tanh|neg|abs)\.(?:\w+\.)*?(bf16x2|f16x2|bf16|f16)\b")
_DIGITS = {
    "fp64": 53, "f64": 53, "fp32": 24, "f32": 24, "tf32": 11, "fp16": 11, "f16": 11, "bf16": 8,
}  # fmt: skip
"""Of the significand; others have fewer."""
FLAGGED = {
    CLOCK: r"%(?:clock|globaltimer|pm\d)",
    PLACE: r"%(?:n?smid|warpid|gridid|envreg\d|current_graph_exec)\b",
}
"""By pattern of one instruction; declarations are none."""
UNCOMMON = {
    "sleep": r"\bnanosleep\b",
    "cache policy": r"\b(?:createpolicy|discard|applypriority)\.|L[12]::(?:evict_(?:last|first|unchanged)|cache_hint)",
    "launch dependence": r"\bgriddepcontrol\b",
    "trap": r"\b(?:trap|brkpt)$",
}
"""Likewise, what few kernels need and none is suspected for."""
DEVICE_ADDRESSES = range(2**32, 2**49)
"""Where a number that reaches the brackets of a load or store is taken for an address; offsets are smaller."""
_GUARD = re.compile(r"(?:trap|brkpt)$|.*%envreg")
"""What headers put into the code of their callers: a barrier of the grid checks that there is one to wait at, and asks
where its words lie. No choice of the kernel's, unless it stands in its own file."""
_FUNCTION = re.compile(r"\.(?:entry|func)\b\s*(?:\([^()]*\)\s*)?([\w$]+)")
_CALLED = re.compile(r"call\b|mov\.|cvta\.|st\.(?:param|local)|ret\b")
"""What is done with the address of a function that is to be called."""
_FILE = re.compile(r'^\s*\.file\s+(\d+)\s+"(?:[^"]*/)?([^"/]*)"', re.MULTILINE)
_PLACE = re.compile(r"\s*\.loc\s+(\d+)\b(?:.*\binlined_at\s+(\d+))?")
_LABEL = re.compile(r"^(?:\s*[\w$]+:)*\s*(?:@!?%?\w+\s+)?")
_OPERAND = re.compile(r"%?[A-Za-z_$][\w$]*")
_ADDRESSING = re.compile(
    r"(?:mov|cvta(?:\.to)?(?:\.global)?|add|sub|or|mad\.(?:wide|lo)|shl)\.[usb]\d+\s+(?P<to>%?[\w$]+)\s*,(?P<from>[^\[\]]*)",
    re.DOTALL,
)
_NUMBER = re.compile(
    r",\s*(?:0[xX](?P<x>[0-9a-fA-F]+)|0[bB](?P<b>[01]+)|0(?P<o>[0-7]+)|(?P<d>0|[1-9]\d{0,19}))U?\s*$", re.ASCII
)
"""An integer of PTX, of whatever base, as the last operand; no longer a decimal than 64 bits have."""
_BASES = {"x": 16, "b": 2, "o": 8, "d": 10}
_INITIAL = re.compile(r"=\s*\Z")
_BASE = re.compile(r"\[\s*(%?[\w$]+)")


@dataclass(frozen=True)
class Traits:
    """How the code of all kernels of a file accesses memory, computes and cooperates."""

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
    shared: bool
    """Reads or writes shared memory."""
    tensor_types: tuple[str, ...]
    """Of what tensor cores multiply: tf32, bf16, f16, e4m3, s8, f64 and the like."""
    scalar_types: tuple[str, ...]
    """Narrow types of ordinary arithmetic: f16, bf16."""


def _derived(names: Collection[str], instructions: Sequence[str]) -> set[str]:
    """These variables and registers, and all that addresses in them are added to or copied into."""
    into: dict[str, list[str]] = {}
    for instruction in instructions:
        if match := _ADDRESSING.fullmatch(instruction):
            for operand in set(_OPERAND.findall(match["from"])):
                into.setdefault(operand, []).append(match["to"])
    addresses, waiting = set(names), list(names)
    while waiting:
        for name in into.get(waiting.pop(), ()):
            if name not in addresses:
                addresses.add(name)
                waiting.append(name)
    return addresses


def _statements(body: str) -> list[str]:
    """Instructions and declarations, without labels and predicates."""
    return [_LABEL.sub("", part).strip("{} \t\n") for part in body.split(";")]


def traits(ptx: str) -> Traits:
    """The traits of all that entries and functions contain."""
    text = "\n".join(_bodies(_COMMENT.sub("", ptx)))
    widest, vectors = 0, False
    for match in _ACCESS.finditer(text):
        modifiers = match["modifiers"]
        if ".global" not in modifiers:
            continue
        element = _ELEMENT.search(modifiers)
        count = _VECTOR.search(modifiers)
        vectors |= count is not None or (element is not None and element[1] == "128")
        widest = max(widest, int(element[1]) // 8 * (int(count[1]) if count else 1) if element else 0)
    return Traits(
        access_bytes=widest,
        vectors=vectors,
        async_copies=_has(text, r"cp\.async\.c[ag]\."),
        bulk_copies=_has(text, r"cp\.(?:reduce\.)?async\.bulk"),
        tensor_cores=_has(text, r"(?:wgmma\.mma_async|wmma\.mma|mma\.sync|mma\.sp|tcgen05\.mma)"),
        atomics=_has(text, r"(?:atom|red)\.(?!\S*shared)"),
        warp=_has(text, r"(?:shfl|vote|match|redux|bar\.warp)\."),
        block=_has(text, r"(?:bar\.(?:cta\.)?(?:sync|red|arrive)|barrier\.(?:cta\.)?(?:sync|red|arrive)|mbarrier\.)"),
        cluster=_has(text, r"(?:barrier\.cluster|mapa\.|(?:ld|st|atom|red)\.\S*shared::cluster)"),
        shared=_has(text, r"(?:ld|st|atom|red)\.(?:\w+\.)*shared"),
        tensor_types=tuple(sorted(set(_tensor_types(text)))),
        scalar_types=tuple(sorted({m[1].removesuffix("x2") for m in _NARROW.finditer(text)})),
    )


def waits(ptx: str, symbol: str) -> bool:
    """Whether a kernel, or a function that it might call, waits for the launches that it depends on."""
    text = _COMMENT.sub("", ptx)
    head = re.search(rf"\.entry\s+{re.escape(symbol)}\b", text)
    if head is None:
        return False
    own = next(_bodies(text[head.end() :]), "")
    searched = [own, *(_bodies(text) if _has(own, r"call\b") else ())]
    return any(_has(body, r"griddepcontrol\.wait\b") for body in searched)


def flagged(ptx: str, *, file: str | None = None) -> tuple[str, ...]:
    """Why a kernel is suspicious though legal, in words; see `fitness.flags`.

    With `file`, for PTX that tells lines: only what stands in this file or in a function of a header that it calls
    itself. What headers do on their own account (barriers that sleep until a time is up) is left out.
    """
    commands = _chosen(ptx, file)
    found = [*_named(FLAGGED, commands)]
    functions = set(_FUNCTION.findall(_COMMENT.sub("", ptx)))
    taken = _derived(functions, commands) if any(map(functions.intersection, map(_OPERAND.findall, commands))) else ()
    if any(not _CALLED.match(c) and not set(_OPERAND.findall(c)).isdisjoint(taken) for c in commands):
        found.append(OWN_ADDRESS)
    return tuple(found + [HELD_ADDRESS] * _has_absolute(commands))


def uncommon(ptx: str, *, file: str | None = None) -> tuple[str, ...]:
    """What few kernels need, for readers of the facts alone; `file` as in `flagged`."""
    return tuple(_named(UNCOMMON, _chosen(ptx, file)))


def _named(patterns: Mapping[str, str], commands: Sequence[str]) -> Iterator[str]:
    text = "\n".join(commands)
    return (name for name, pattern in patterns.items() if re.search(pattern, text, re.MULTILINE))


def _chosen(ptx: str, file: str | None) -> list[str]:
    """The instructions that a kernel answers for, as far as the PTX tells."""
    bodies = "\n".join(_bodies(_COMMENT.sub("", ptx)))
    if file is None:
        return _commands(bodies)
    numbers = {number for number, name in _FILE.findall(ptx) if name == file}
    own, called = (_commands(text) for text in _by_origin(bodies, numbers))
    return own + [command for command in called if not _GUARD.match(command)]


def _has_absolute(commands: Sequence[str]) -> bool:
    """Whether something is read or written at an address that the code holds as a number."""
    numbers = {
        match["to"]
        for command in commands
        if (match := _ADDRESSING.fullmatch(command)) and (number := _NUMBER.search(command))
        and int(number[number.lastgroup or "d"], _BASES[number.lastgroup or "d"]) in DEVICE_ADDRESSES
    }  # fmt: skip
    addresses = _derived(numbers, commands) if numbers else set()
    return any(not addresses.isdisjoint(_BASE.findall(command)) for command in commands)


def _commands(body: str) -> list[str]:
    """Instructions alone."""
    return [statement for statement in _statements(body) if not statement.startswith(".")]


def _by_origin(bodies: str, numbers: Collection[str]) -> tuple[str, str]:
    """The lines that came from files of these numbers, and those from functions of others that these call."""
    own: list[str] = []
    called: list[str] = []
    into = own
    for line in bodies.splitlines():
        if place := _PLACE.match(line):
            into = own if place[1] in numbers else called if place[2] in numbers else []
        else:
            into.append(line)
    return "\n".join(own), "\n".join(called)


def lower_precision(found: Traits, dtype: str) -> tuple[str, ...]:
    """What is computed in types with fewer digits than the task's own, in words.

    Not wrong as such: three TF32 products make an fp32 one. Whether it is accurate enough is for the oracle to say.
    """
    digits = _DIGITS[dtype]
    tensor = [f"{t} tensor cores" for t in found.tensor_types if _DIGITS.get(t, 0) < digits]
    return (*tensor, *(f"{t} arithmetic" for t in found.scalar_types if _DIGITS[t] < digits))


def _tensor_types(text: str) -> Iterator[str]:
    for match in _MMA.finditer(text):
        types = _TYPE.findall(match[0])
        if match[1] == "wmma" and len(types) == 2:  # d and c alone: the operands are f16
            yield "f16"
        elif match[1] == "tcgen05":
            yield from (kind for kind in _KIND.findall(match[0]))
        else:  # d, a, b, c; wgmma: d, a, b
            yield from types[1:3]


def _has(text: str, instruction: str) -> bool:
    return re.search(rf"(?:^|[\s{{;}}]){instruction}", text) is not None


def _bodies(text: str) -> Iterator[str]:
    """What stands between the outer braces of entries and functions; not the initial values of variables."""
    depth, begin, initial, end = 0, 0, False, 0
    for brace in re.finditer(r"[{}]", text):
        depth = max(depth + (1 if brace[0] == "{" else -1), 0)
        if brace[0] == "{" and depth == 1:
            begin, initial = brace.end(), _INITIAL.search(text, end, brace.start()) is not None
        elif brace[0] == "}" and depth == 0:
            end = brace.end()
            if not initial:
                yield text[begin : brace.start()]
    if depth and not initial:
        yield text[begin:]
