"""Instructions that threads do together: barriers, exchanges within a warp, and its matrices."""

from __future__ import annotations

from collections.abc import Mapping

from fitness.emulator.ptx.operands import CPP, LINE, SHARED, Emit, address, count, members, to, value
from fitness.emulator.ptx.reading import Group, Instruction, NotEmulated, Operand


def _barrier(i: Instruction) -> str:
    """bar and barrier of a block: all threads of it, or as many as the second operand says."""
    i.only("cta", "sync", "arrive", "aligned", types=0)
    count(i.operands, 1, 2)
    number = value(i.operands[0])
    threads = value(i.operands[1]) if len(i.operands) == 2 else "0"
    if i.has("arrive"):
        count(i.operands, 2)
        return f"evo::arrive_at_barrier(unsigned({number}), unsigned({threads}), {LINE});"
    return f"evo::barrier(evo::Kind::SYNC, 0, {LINE}, unsigned({number}), unsigned({threads}));"


def _voting_barrier(i: Instruction) -> str:
    i.only("cta", "red", "aligned", "popc", "and", "or")
    count(i.operands, 3, 4)
    kind = "COUNT" if i.has("popc") else "AND" if i.has("and") else "OR"
    threads = value(i.operands[2]) if len(i.operands) == 4 else "0"
    where = f"{LINE}, unsigned({value(i.operands[1])}), unsigned({threads})"
    call = f"evo::barrier(evo::Kind::SYNC_{kind}, {value(i.operands[-1])}, {where})"
    return f"{to(i.operands[0])} = {call};"


def _warp_barrier(i: Instruction) -> str:
    i.only("warp", "sync", types=0)
    count(i.operands, 1)
    return f"__syncwarp({value(i.operands[0])}, {LINE});"


def _cluster_barrier(i: Instruction) -> str:
    """Who arrives goes on and waits where the instruction says so: there for all."""
    i.only("cluster", "arrive", "wait", "aligned", "release", "acquire", "relaxed", types=0)
    return f"evo::barrier(evo::Kind::ALL_BLOCKS, 0, {LINE});" if i.has("wait") else ";"


def _collective(kind: str, source: str, mask: str) -> str:
    return f"evo::collective(evo::Kind::{kind}, unsigned({mask}), {source}, {LINE})"


def _vote(i: Instruction) -> str:
    i.only("sync", "all", "any", "uni", "ballot")
    count(i.operands, 3)
    result, given, mask = to(i.operands[0]), value(i.operands[1]), value(i.operands[2])
    if i.has("uni"):  # all, or none
        none = f"!({_collective('ANY', f'{given} != 0', mask)})"
        return (
            f"const bool evo_asm_none = {none}; {result} = {_collective('ALL', f'{given} != 0', mask)} || evo_asm_none;"
        )
    kind = next(name for name in ("all", "any", "ballot") if i.has(name))
    return f"{result} = {_collective(kind.upper(), f'{given} != 0', mask)};"


def _shuffle(i: Instruction) -> str:
    i.only("sync", "up", "down", "bfly", "idx")
    count(i.operands, 5)
    kind = {"up": "UP", "down": "DOWN", "bfly": "XOR", "idx": "SHUFFLE"}[i.modifiers[1]]
    results = members(i.operands[0])
    given = ", ".join(f"std::uint32_t({value(operand, i.type)})" for operand in i.operands[1:])
    parts = [
        "bool evo_asm_inside;",
        "const std::uint32_t evo_asm_word = "
        f"evo::ptx::shuffled_bits(evo::Kind::{kind}, {given}, evo_asm_inside, {LINE});",
        f"{to(results[0])} = evo_asm_word;",
        *(f"{to(result)} = evo_asm_inside;" for result in results[1:2]),
    ]
    return " ".join(parts)


def _reduction(i: Instruction) -> str:
    i.only("sync", "add", "min", "max", "and", "or", "xor")
    count(i.operands, 3)
    sign = "SIGNED_" if i.type == "s32" and i.modifiers[1] in ("min", "max") else ""
    logic = "BIT_" if i.modifiers[1] in ("and", "or", "xor") else ""
    call = _collective(
        f"{sign}{logic}{i.modifiers[1].upper()}", f"std::uint32_t({value(i.operands[1])})", value(i.operands[2])
    )
    return f"{to(i.operands[0])} = static_cast<std::uint32_t>({call});"


def _match(i: Instruction) -> str:
    i.only("any", "all", "sync")
    count(i.operands, 3)
    results = members(i.operands[0])
    word = f"static_cast<{CPP[i.type]}>({value(i.operands[1])})"
    call = _collective("MATCH_ALL" if i.has("all") else "MATCH_ANY", word, value(i.operands[2]))
    told = "".join(f" {to(result)} = evo::matched();" for result in results[1:2])
    return f"{to(results[0])} = static_cast<std::uint32_t>({call});{told}"


def _active(i: Instruction) -> str:
    return f"{to(i.operands[0])} = static_cast<std::uint32_t>({_collective('ACTIVE', '0', '~0u')});"


def _elected(i: Instruction) -> str:
    i.only("sync", types=0)
    count(i.operands, 2)
    leader, chosen = members(i.operands[0])
    mask = f"std::uint32_t({value(i.operands[1])})"
    return f"{to(chosen)} = evo::ptx::elected({mask}, {LINE}); {to(leader)} = __builtin_ctz({mask});"


def _matrices(i: Instruction) -> str:
    """ldmatrix and stmatrix of matrices of 8 x 8 elements of 16 bits."""
    number = next(m for m in i.modifiers if m in ("x1", "x2", "x4"))
    i.only("sync", "aligned", "m8n8", number, "trans", *SHARED)
    if i.type != "b16" or not i.has("m8n8"):
        raise NotEmulated(i.text)
    count(i.operands, 2)
    where, group = i.operands if i.opcode == "stmatrix" else i.operands[::-1]
    registers = members(group)
    if len(registers) != int(number[1:]):
        raise NotEmulated(i.text)
    at = address(where)
    if not set(i.modifiers) & set(SHARED):
        at = f"evo::shared_address(reinterpret_cast<const void*>({at}))"
    arguments = f"<{number[1:]}, {str(i.has('trans')).lower()}>({at}, {LINE}"
    if i.opcode == "stmatrix":
        return f"evo::ptx::store_matrix{arguments}, {', '.join(map(value, registers))});"
    return f"evo::ptx::load_matrix{arguments}, {', '.join(map(to, registers))});"


def _transposed(i: Instruction) -> str:
    i.only("sync", "aligned", "m8n8", "trans")
    count(i.operands, 2)
    return f"{to(i.operands[0])} = evo::ptx::transposed({value(i.operands[1])}, {LINE});"


SHAPES: Mapping[str, tuple[str, ...]] = {
    "f16": ("m16n8k8", "m16n8k16"), "bf16": ("m16n8k8", "m16n8k16"), "tf32": ("m16n8k4", "m16n8k8"),
    **dict.fromkeys(("s8", "u8"), ("m8n8k16", "m16n8k16", "m16n8k32")),
    **dict.fromkeys(("e4m3", "e5m2"), ("m16n8k16", "m16n8k32")),
    "f64": ("m8n8k4", "m16n8k4", "m16n8k8", "m16n8k16"),
}  # fmt: skip
"""Shapes of mma, by the type of A."""
MIXED = (frozenset(("s8", "u8")), frozenset(("e4m3", "e5m2")))
SUMS: Mapping[str, tuple[str, ...]] = {
    "f16": ("f16", "f32"), "bf16": ("f32",), "tf32": ("f32",), "s8": ("s32",), "u8": ("s32",),
    "e4m3": ("f16", "f32"), "e5m2": ("f16", "f32"), "f64": ("f64",),
}  # fmt: skip


def _multiply(i: Instruction) -> str:
    """mma.sync.aligned.SHAPE.row.col.D.A.B.C d, a, b, c"""
    shape = i.modifiers[2]
    i.only("sync", "aligned", shape, "row", "col", "satfinite", *(["rn"] if i.has("f64") else []), types=4)
    d, a, b, c = i.types
    same = a == b or any({a, b} <= mixed for mixed in MIXED)
    if not same or shape not in SHAPES[a] or d not in SUMS[a] or c not in SUMS[a]:
        raise NotEmulated(i.text)
    count(i.operands, 4)
    m, n, k = (int(size) for size in shape[1:].replace("n", " ").replace("k", " ").split())
    elements = {"f64": 1, "tf32": 1, "f16": 2, "bf16": 2}.get(a, 4)
    sizes = [m * n // 32 // (2 if kind == "f16" else 1) for kind in (d, c)]
    groups = [members(operand) for operand in i.operands]
    if list(map(len, groups)) != [sizes[0], m * k // 32 // elements, n * k // 32 // elements, sizes[1]]:
        raise NotEmulated(i.text)
    saturated = str(i.has("satfinite")).lower()
    kinds = ", ".join(CPP[kind] for kind in (a, b, c, d))
    lists = ", ".join(f"{{{', '.join(map(_word, group))}}}" for group in groups[1:])
    parts = [f"evo::ptx::Fragments evo_asm_parts = {{{lists}, {{}}}};"]
    parts.append(f"evo::ptx::Mma<{kinds}, {m}, {n}, {k}, {saturated}>::run(evo_asm_parts, {LINE});")
    parts += [f"{to(r)} = static_cast<decltype({to(r)})>(evo_asm_parts.d[{at}]);" for at, r in enumerate(groups[0])]
    return " ".join(parts)


def _word(operand: Operand) -> str:
    if isinstance(operand, Group):
        raise NotEmulated("a group in a group")
    return value(operand, "f32")


def _trap(i: Instruction) -> str:
    return f"__trap({LINE});"


WARPS: Mapping[str, Emit] = {
    "bar.sync": _barrier, "bar.arrive": _barrier, "bar.cta": _barrier, "barrier.sync": _barrier,
    "barrier.arrive": _barrier, "barrier.cta": _barrier, "bar.red": _voting_barrier, "barrier.red": _voting_barrier,
    "bar.cta.red": _voting_barrier, "barrier.cta.red": _voting_barrier, "bar.warp": _warp_barrier,
    "barrier.cluster": _cluster_barrier, "vote.sync": _vote, "shfl.sync": _shuffle, "redux.sync": _reduction,
    "match.any": _match, "match.all": _match, "activemask": _active, "elect.sync": _elected, "ldmatrix": _matrices,
    "stmatrix": _matrices, "movmatrix": _transposed, "mma.sync": _multiply, "trap": _trap, "brkpt": _trap,
}  # fmt: skip
