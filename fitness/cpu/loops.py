"""Widths of the vectors that a compiled kernel works with, told from the loops of its machine code.

What a static count of instructions cannot tell: one instruction in a loop may run a million times, and the scalar rest
of a vectorised loop, unrolled, has more instructions than the loop. x86-64 only; elsewhere nothing is recognised.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

import numpy as np
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import connected_components

WEIGHT = 8.0
"""Assumed passes of a loop for each pass of the loop around it."""
DEEPEST = 8
"""Levels that count, through calls too, which may be recursive."""
MAINLY = 1 / 4
"""The least share of a loop's arithmetic for vectors of a width to be what the loop works with."""
RELEVANT = 1 / 20
"""The least share of all loops for those that work with vectors of a width to be what the kernel works with."""
WIDTHS = {"x": 128, "y": 256, "z": 512}
LIBRARY_WIDTHS = {"b": 128, "c": 256, "d": 256, "e": 512}
"""Vector widths in the names of glibc's functions, `_ZGVdN8v_expf`, in bits."""
LIBRARY_COPIES = 256
"""Vector width of glibc's memcpy where there is AVX, in bits."""

_FUNCTION = re.compile(r"([0-9a-f]+) <([^>]+)>:")
_INSTRUCTION = re.compile(r"\s*([0-9a-f]+):\t(?:(?:lock|rep[nz]*|notrack|bnd|data16|cs) )*(\S+)\s*(.*)")
_RELOCATION = re.compile(r"\s*[0-9a-f]+: R_\S+\s+([^\s+-]+)")
_TARGET = re.compile(r"(?:^|# )([0-9a-f]+) <")
_ARITHMETIC = r"v?(?:f?n?m?(?:add|sub)\w*|mul|div|sqrt|max|min|rcp\w*|rsqrt\w*|rndscale|scalef|cmp\w*)"
_PACKED = re.compile(rf"(?:{_ARITHMETIC}p[sd]|v?p(?:add|sub|mul|madd|min|max|sll|srl|sra|abs|cmp)\w*)$")
_SCALAR = re.compile(rf"{_ARITHMETIC}s[sd]$")
_PACKED_MOVE = re.compile(r"v?mov(?:[aun]\w*p[sd]|(?:nt)?dq\w*)$")
_SCALAR_MOVE = re.compile(r"v?movs[sd]$")
_COPY_CALL = re.compile(r"mem(?:cpy|move|set)$")
_VECTOR_CALL = re.compile(r"_ZGV([bcde])")
_MATH_CALL = re.compile(
    r"_*(?:exp|exp2|exp10|expm1|log|log2|log10|log1p|pow|sin|cos|tan|sincos|a?sinh?|a?cosh?|a?tanh?|atan2|erfc?|cbrt|hypot"
    r"|[lt]gamma|fmod)f?(?:_finite)?$"
)


@dataclass
class Work:
    """Work of one loop without the loops inside it: numbers of instructions by vector width."""

    arithmetic: dict[int, int] = field(default_factory=dict)
    """Width in bits, 0: scalar."""
    moves: dict[int, int] = field(default_factory=dict)
    """Loads and stores, likewise; what counts where nothing is computed."""
    depth: int = 0

    @property
    def shares(self) -> dict[int, float]:
        """The share of its work that is done at each vector width, in bits."""
        counts = self.arithmetic or self.moves
        number = sum(counts.values())
        return {bits: count / number for bits, count in counts.items()}

    @property
    def weight(self) -> float:
        """The assumed number of runs of its loop, by the depth of its nesting."""
        return WEIGHT ** min(self.depth, DEEPEST)

    @property
    def bits(self) -> int:
        """The widest vectors that it mainly works with; 0: none."""
        return max((bits for bits, share in self.shares.items() if share >= MAINLY), default=0)


@dataclass(frozen=True)
class _Code:
    """The instructions of an object file in order."""

    mnemonics: list[str]
    operands: list[str]
    symbols: list[str]
    """Symbols that relocations refer to; often empty."""
    targets: list[int]
    """The instruction that a jump, a call or an address names; -1: none here."""
    owner: np.ndarray
    """The function of each, by number."""
    entries: list[int]
    """The first instruction of each function."""
    names: dict[str, int]


def vector_work(listing: str) -> tuple[int, float]:
    """The widest vectors, in bits, that carry a relevant part of the work, and the share of all vectors.

    `listing` is what `objdump -dr --no-show-raw-insn` says of an object file. Every loop counts as a whole, by how deep
    it lies; so do the straight parts of functions. (0, 0.0) where nothing is computed or moved.
    """
    loops = loops_of(listing)
    total = sum(loop.weight for loop in loops)
    widths = {loop.bits for loop in loops}
    carried = {bits: sum(loop.weight for loop in loops if loop.bits == bits) for bits in widths}
    widest = max((bits for bits, weight in carried.items() if weight >= RELEVANT * total), default=0)
    scalar = sum(loop.weight * loop.shares.get(0, 0.0) for loop in loops)
    return widest, 1 - scalar / total if total else 0.0


def loops_of(listing: str) -> list[Work]:
    """The work of every loop, and of every function outside loops."""
    code = _read(listing)
    count = len(code.mnemonics)
    sources, targets = _flow(code)
    depth, loop = nesting(count, sources, targets, np.array(code.entries, dtype=np.int64))
    base = _call_depths(code, depth)
    works: dict[tuple[int, int], Work] = {}
    for at in range(count):
        kind = _kind(code, at)
        if kind is None:
            continue
        is_move, bits = kind
        function = int(code.owner[at])
        place = (function, int(loop[at]))
        work = works.setdefault(place, Work(depth=base[function] + int(depth[at])))
        counts = work.moves if is_move else work.arithmetic
        counts[bits] = counts.get(bits, 0) + 1
    return list(works.values())


def nesting(count: int, sources: np.ndarray, targets: np.ndarray, entries: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The number of loops, DEEPEST at most, around each of `count` nodes of a flow graph, and a number for the
    innermost.

    -1 stands for none.

    A loop is a strongly connected component; those inside it are the components of what is left without the edges to
    the nodes by which it is entered (B. Steensgaard, "Sequentializing program dependence graphs for irreducible
    programs", 1993).
    """
    depth, innermost = np.zeros(count, dtype=np.int64), np.full(count, -1, dtype=np.int64)
    numbered = 0
    for _ in range(DEEPEST):
        graph = csr_matrix((np.ones(sources.size, dtype=np.int8), (sources, targets)), shape=(count, count))
        found, label = connected_components(graph, directed=True, connection="strong")
        inside = label[sources] == label[targets]
        members = np.unique(np.concatenate((sources[inside], targets[inside])))
        depth[members] += 1
        innermost[members] = numbered + label[members]
        numbered += found
        entered = np.zeros(count, dtype=bool)
        entered[targets[~inside]] = True
        entered[entries] = True
        _, first = np.unique(label[members], return_index=True)
        unreached = np.ones(found, dtype=bool)  # by anything that could be read
        unreached[label[entered]] = False
        starts = members[first]
        entered[starts[unreached[label[starts]]]] = True
        kept = inside.copy()
        kept[inside] = ~entered[targets[inside]]
        sources, targets = sources[kept], targets[kept]
    return depth, innermost


def _read(listing: str) -> _Code:
    code = _Code([], [], [], [], np.empty(0), [], {})
    owner: list[int] = []
    named: list[tuple[int, int] | None] = []
    places: dict[tuple[int, int], int] = {}
    section = 0
    for line in listing.splitlines():
        if match := _INSTRUCTION.fullmatch(line):
            places[section, int(match[1], 16)] = len(owner)
            code.mnemonics.append(match[2])
            code.operands.append(match[3])
            code.symbols.append("")
            owner.append(len(code.entries) - 1)
            target = _TARGET.search(match[3])
            named.append((section, int(target[1], 16)) if target else None)
        elif (match := _RELOCATION.match(line)) and owner:
            code.symbols[-1] = match[1]
            named[-1] = None
        elif match := _FUNCTION.match(line):
            code.names[match[2]] = len(owner)
            code.entries.append(len(owner))
        elif line.startswith("Disassembly of section"):
            section += 1
    names = {name: entry for name, entry in code.names.items() if entry < len(owner)}  # a listing may be cut short
    for place, symbol in zip(named, code.symbols, strict=True):
        code.targets.append(places.get(place, -1) if place else names.get(symbol, -1))
    entries = [entry for entry in code.entries if entry < len(owner)]
    return _Code(
        code.mnemonics, code.operands, code.symbols, code.targets, np.array(owner, dtype=np.int64), entries, names
    )


def _flow(code: _Code) -> tuple[np.ndarray, np.ndarray]:
    """Edges between instructions; calls return."""
    edges = []
    for at, mnemonic in enumerate(code.mnemonics):
        jumps = mnemonic.startswith("j")
        if jumps and code.targets[at] >= 0:
            edges.append((at, code.targets[at]))
        # Behind a table of jumps stand some of its targets.
        ends = mnemonic.startswith(("jmp", "ret", "ud2", "hlt")) and not code.operands[at].startswith("*")
        if not ends and at + 1 < len(code.mnemonics) and code.owner[at] == code.owner[at + 1]:
            edges.append((at, at + 1))
    pairs = np.array(edges, dtype=np.int64).reshape(-1, 2)
    return pairs[:, 0], pairs[:, 1]


def _call_depths(code: _Code, depth: np.ndarray) -> list[int]:
    """The depth in loops of its callers at which every function is called, or has its address taken."""
    functions = {entry: number for number, entry in enumerate(code.entries)}
    uses = [
        (int(code.owner[at]), functions[target], int(depth[at]))
        for at, target in enumerate(code.targets)
        if target in functions and code.owner[at] != functions[target]
    ]
    base = [0] * len(code.entries)
    for _ in range(DEEPEST):
        for caller, called, inside in uses:
            base[called] = max(base[called], min(base[caller] + inside, DEEPEST))
    return base


def _kind(code: _Code, at: int) -> tuple[bool, int] | None:
    """Whether an instruction moves (else computes), and how many bits at once; None for all others."""
    mnemonic, operands = code.mnemonics[at], code.operands[at]
    if mnemonic.startswith(("call", "jmp")) and code.symbols[at]:
        symbol = code.symbols[at]
        if match := _VECTOR_CALL.match(symbol):
            return False, LIBRARY_WIDTHS[match[1]]
        if _COPY_CALL.match(symbol):
            return True, LIBRARY_COPIES
        return (False, 0) if _MATH_CALL.match(symbol) else None
    if _SCALAR.match(mnemonic):
        return False, 0
    if _PACKED.match(mnemonic):
        return (False, bits) if (bits := _bits(operands)) else None
    if "(" not in operands or "(%rsp" in operands or "(%rip" in operands:
        return None  # between registers, of what did not fit into them, or a constant
    if _SCALAR_MOVE.match(mnemonic):
        return True, 0
    if _PACKED_MOVE.match(mnemonic):
        return (True, bits) if (bits := _bits(operands)) else None
    return None


def _bits(operands: str) -> int:
    return max((WIDTHS[letter] for letter in re.findall(r"%([xyz])mm", operands)), default=0)
