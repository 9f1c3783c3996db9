"""Instructions of PTX in words of C++: those that compute, those of memory, and those that threads do together."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from fitness.emulator.ptx.operands import (
    CPP,
    FLOATS,
    HALVES,
    LINE,
    ROUNDING,
    SHARED,
    SPACES,
    UNSIGNED,
    Emit,
    address,
    count,
    members,
    place,
    to,
    value,
)
from fitness.emulator.ptx.reading import WIDTHS, Group, Immediate, Instruction, NotEmulated, Operand, Register


def _rule(i: Instruction) -> str:
    return str(int(i.has("ftz")) + 2 * int(i.has("sat")))


def _applied(i: Instruction, kind: str, expression: str, sources: Iterable[str]) -> str:
    """The result of an expression over `a`, `b` and `c`, numbers of a type."""
    values = list(sources)
    names = ", ".join(f"auto {name}" for name in "abcd"[: len(values)])
    call = f"[&]({names}) {{ return {expression}; }}"
    return f"evo::ptx::apply<{CPP[kind]}, {_rule(i)}>({to(i.operands[0])}, {call}, {', '.join(values)});"


def _simple(expression: str, arity: int, types: Iterable[str], modifiers: Iterable[str] = ()) -> Emit:
    """Instructions whose operands and result all have the one type that they name."""
    types, modifiers = frozenset(types), tuple(modifiers)

    def emit(i: Instruction) -> str:
        i.only(*modifiers, *(("ftz", "sat", *ROUNDING) if i.type in FLOATS else ()))
        count(i.operands, arity + 1)
        if i.type not in types:
            raise NotEmulated(i.text)
        text = expression.replace("NAN", "true" if i.has("NaN") else "false")
        return _applied(i, i.type, text, [value(operand, i.type) for operand in i.operands[1:]])

    return emit


def _multiplied(i: Instruction) -> str:
    """mul, mad: floats, and the low, high or whole product of integers."""
    kind, more = i.type, " + c" if i.opcode == "mad" else ""
    count(i.operands, 4 if more else 3)
    sources = [value(operand, kind) for operand in i.operands[1:]]
    if kind in FLOATS:
        i.only("ftz", "sat", *ROUNDING)
        return _applied(i, kind, "::fma(a, b, c)" if more else "a * b", sources)
    i.only("lo", "hi", "wide")
    if i.has("wide"):
        wide = f"{kind[0]}{2 * WIDTHS[kind]}"
        read = [f"evo::ptx::Number<{CPP[kind]}>::bits(static_cast<{CPP[kind]}>({source}))" for source in sources[:2]]
        return _applied(i, wide, f"a * b{more}", [*read, *sources[2:]])
    return _applied(i, kind, f"{'evo::ptx::high_part(a, b)' if i.has('hi') else 'a * b'}{more}", sources)


ALL = frozenset((*FLOATS, *(f"{kind}{bits}" for kind in "su" for bits in (16, 32, 64))))
INTEGERS = ALL - frozenset(FLOATS)
BITS = frozenset(("b16", "b32", "b64"))
WIDE = frozenset(("f32", "f64"))
APPROXIMATE = frozenset(("f32", "f64", *HALVES))


def _logic(expression: str, on_predicates: str, arity: int = 2) -> Emit:
    plain = _simple(expression, arity, BITS)

    def emit(i: Instruction) -> str:
        return _simple(on_predicates, arity, ("pred",))(i) if i.type == "pred" else plain(i)

    return emit


def _absolute(i: Instruction) -> str:
    return _simple("::fabs(a)" if i.type in FLOATS else "a < 0 ? -a : a", 1, ALL)(i)


def _shift(i: Instruction) -> str:
    i.only()
    count(i.operands, 3)
    function = "left" if i.opcode == "shl" else "right"
    by = f"static_cast<std::uint32_t>({value(i.operands[2])})"
    return _applied(i, i.type, f"evo::ptx::shifted_{function}(a, {by})", [value(i.operands[1])])


def _words(expression: str, *modifiers: str) -> Emit:
    """A 32-bit result of an expression over operands $1, $2 and so on, words of the instruction's type."""

    def emit(i: Instruction) -> str:
        i.only(*modifiers)
        text = re.sub(r"\$(\d)", lambda m: f"static_cast<{CPP[i.type]}>({value(i.operands[int(m[1])])})", expression)
        for modifier in ("wrap", "l"):
            text = text.replace(f"?{modifier}", "true" if i.has(modifier) else "false")
        return f"{to(i.operands[0])} = static_cast<decltype({to(i.operands[0])})>({text});"

    return emit


COMPARISONS: Mapping[str, str] = {
    "eq": "a == b", "ne": "a != b && !evo::ptx::unordered(a, b)", "lt": "a < b", "le": "a <= b", "gt": "a > b",
    "ge": "a >= b", "lo": "a < b", "ls": "a <= b", "hi": "a > b", "hs": "a >= b",
    **{f"{name}u": f"a {sign} b || evo::ptx::unordered(a, b)" for name, sign in (
        ("eq", "=="), ("ne", "!="), ("lt", "<"), ("le", "<="), ("gt", ">"), ("ge", ">="))},
    "num": "!evo::ptx::unordered(a, b)", "nan": "evo::ptx::unordered(a, b)",
}  # fmt: skip


def _comparison(i: Instruction) -> str:
    comparison, kind = i.modifiers[0], i.type
    if kind in ("f16x2", "bf16x2"):
        raise NotEmulated(i.text)
    values = ", ".join(value(operand, kind) for operand in i.operands[1:3])
    call = f"[](auto a, auto b) {{ return {COMPARISONS[comparison]}; }}"
    return f"evo::ptx::compare<{CPP[kind]}, {_rule(i)}>({call}, {values})"


def _set_predicate(i: Instruction) -> str:
    logic = {"and": "&", "or": "|", "xor": "^"}
    chosen = [m for m in i.modifiers[1:] if m in logic]
    i.only(i.modifiers[0], "ftz", *chosen)
    count(i.operands, 4 if chosen else 3)
    results = [to(member) for member in members(i.operands[0])]
    parts = [f"const bool evo_asm_is = {_comparison(i)};"]
    for number in range(len(results)):
        text = "!evo_asm_is" if number else "evo_asm_is"
        text = f"({text}) {logic[chosen[0]]} static_cast<bool>({value(i.operands[3])})" if chosen else text
        parts.append(f"const bool evo_asm_is{number} = {text};")
    return " ".join([*parts, *(f"{result} = evo_asm_is{number};" for number, result in enumerate(results))])


def _selected(i: Instruction) -> str:
    i.only()
    count(i.operands, 4)
    one, other = (f"static_cast<std::uint64_t>({value(operand, i.type)})" for operand in i.operands[1:3])
    into = to(i.operands[0])
    return f"{into} = static_cast<decltype({into})>({value(i.operands[3])} ? {one} : {other});"


TO_INTEGER = {"rni": "::rint", "rzi": "::trunc", "rmi": "::floor", "rpi": "::ceil"}


def _converted(i: Instruction) -> str:
    """cvt, of one number or of two into one register."""
    modes = [m for m in i.modifiers if m in TO_INTEGER]
    i.only(*ROUNDING, "rna", "ftz", "sat", "relu", *modes, types=2)
    kind, of = i.types
    into = to(i.operands[0])
    if kind in ("f16x2", "bf16x2") and of == "f32":
        count(i.operands, 3)
        both = [f"evo::ptx::Number<{CPP[kind[:-2]]}>::bits({_float(i, source)})" for source in i.operands[2:0:-1]]
        return f"{into} = static_cast<decltype({into})>({both[0]} | {both[1]} << 16);"
    count(i.operands, 2)
    source = value(i.operands[1], of)
    if kind == "tf32":
        i.only("rna", "rn", types=2)
        return f"{into} = evo::ptx::rounded_tf32(static_cast<std::uint32_t>({source}), {str(i.has('rn')).lower()});"
    read = f"evo::ptx::Number<{CPP[of]}>::of({source})"
    if kind in INTEGERS | {"s8", "u8"} and of in FLOATS:
        bits = f"evo::ptx::to_integer<{CPP[kind]}>({TO_INTEGER[modes[0]]}(static_cast<double>({read})))"
    elif kind in FLOATS and of in FLOATS:
        bits = f"evo::ptx::Number<{CPP[kind]}>::bits({_float(i, i.operands[1], of, *modes)})"
    elif i.has("sat") and kind not in FLOATS:
        raise NotEmulated(i.text)
    else:
        kept = f"decltype(evo::ptx::Number<{CPP[kind]}>::of(0))"
        bits = f"evo::ptx::Number<{CPP[kind]}>::bits(static_cast<{kept}>({read}))"
    return f"{into} = static_cast<decltype({into})>({bits});"


def _float(i: Instruction, source: Operand, kind: str = "f32", mode: str = "") -> str:
    """A float on its way into another type."""
    text = f"evo::ptx::Number<{CPP[kind]}>::of({value(source, kind)})"
    text = f"evo::ptx::flushed({text})" if i.has("ftz") else text
    text = f"{TO_INTEGER[mode]}({text})" if mode else text
    text = f"evo::ptx::saturated({text})" if i.has("sat") else text
    return f"evo::ptx::greatest<decltype({text})>({text}, 0, true)" if i.has("relu") else text


def _moved(i: Instruction) -> str:
    i.only()
    count(i.operands, 2)
    into, source = i.operands
    width = WIDTHS[i.type]
    if isinstance(source, Group):
        each = width // len(source.members)
        parts = [
            f"(static_cast<std::uint64_t>({value(m)}) & {(1 << each) - 1:#x}ull) << {n * each}"
            for n, m in enumerate(source.members)
        ]
        return f"{to(into)} = static_cast<{UNSIGNED[width]}>({' | '.join(parts)});"
    if isinstance(into, Group):
        each = width // len(into.members)
        parts = [
            f"{to(m)} = static_cast<{UNSIGNED[each]}>(evo_asm_whole >> {n * each});" for n, m in enumerate(into.members)
        ]
        return f"const std::uint64_t evo_asm_whole = {value(source)}; {' '.join(parts)}"
    return f"{to(into)} = static_cast<decltype({to(into)})>({value(source, i.type)});"


def _address_space(i: Instruction) -> str:
    into, source = to(i.operands[0]), f"static_cast<std::uint64_t>({value(i.operands[1])})"
    i.only("to", *SPACES)
    if set(i.modifiers) & set(SHARED):
        back = f"evo::shared_address(reinterpret_cast<const void*>({source}))"
        source = back if i.has("to") else f"reinterpret_cast<std::uint64_t>(evo::shared_pointer({source}))"
    return f"{into} = static_cast<decltype({into})>({source});"


def _isspacep(i: Instruction) -> str:
    i.only("shared", types=0)
    count(i.operands, 2)
    inside = f"evo::is_shared(reinterpret_cast<const void*>(static_cast<std::uint64_t>({value(i.operands[1])})))"
    return f"{to(i.operands[0])} = {inside};"


ARITHMETIC: Mapping[str, Emit] = {
    "add": _simple("a + b", 2, ALL), "sub": _simple("a - b", 2, ALL), "mul": _multiplied, "mad": _multiplied,
    "fma": _simple("static_cast<decltype(a)>(::fma(a, b, c))", 3, APPROXIMATE, ("relu",)),
    "div": _simple("evo::ptx::divided(a, b)", 2, ALL), "rem": _simple("evo::ptx::remainder_of(a, b)", 2, INTEGERS),
    "min": _simple("evo::ptx::least(a, b, NAN)", 2, ALL, ("NaN",)),
    "max": _simple("evo::ptx::greatest(a, b, NAN)", 2, ALL, ("NaN",)),
    "neg": _simple("-a", 1, ALL), "abs": _absolute,
    "copysign": _simple("::copysign(b, a)", 2, WIDE), "sad": _simple("c + (a < b ? b - a : a - b)", 3, INTEGERS),
    "rcp": _simple("1 / a", 1, WIDE), "sqrt": _simple("::sqrt(a)", 1, WIDE), "rsqrt": _simple("1 / ::sqrt(a)", 1, WIDE),
    "sin": _simple("::sin(a)", 1, WIDE), "cos": _simple("::cos(a)", 1, WIDE), "lg2": _simple("::log2(a)", 1, WIDE),
    "ex2": _simple("::exp2(a)", 1, APPROXIMATE), "tanh": _simple("::tanh(a)", 1, APPROXIMATE),
    "and": _logic("a & b", "a && b"), "or": _logic("a | b", "a || b"), "xor": _logic("a ^ b", "a != b"),
    "not": _logic("~a", "!a", 1), "cnot": _simple("a == 0", 1, BITS), "shl": _shift, "shr": _shift,
    "lop3": _words("evo::ptx::lop3($1, $2, $3, $4)"), "prmt": _words("__byte_perm($1, $2, $3)"),
    "popc": _words("__builtin_popcountll($1)"), "brev": _simple("evo::ptx::reversed(a)", 1, BITS),
    "clz": _words("evo::ptx::leading_zeros($1)"),
    "bfe": _words("evo::ptx::extracted($1, static_cast<std::uint32_t>($2), static_cast<std::uint32_t>($3))"),
    "bfi": _words("evo::ptx::inserted($1, $2, static_cast<std::uint32_t>($3), static_cast<std::uint32_t>($4))"),
    "shf": _words("evo::ptx::funnel($1, $2, $3, ?l, ?wrap)", "l", "r", "wrap", "clamp"),
    "setp": _set_predicate, "selp": _selected, "cvt": _converted, "mov": _moved, "cvta": _address_space,
    "isspacep": _isspacep,
}  # fmt: skip


SCOPES = ("cta", "cluster", "gpu", "sys")
ORDERED = ("volatile", "relaxed", "acquire", "release", "acq_rel", "cv", "mmio")
"""Accesses by which threads wait for each other: who polls must let others run."""
HINTS = ("weak", "nc", "ca", "cg", "cs", "lu", "wb", "wt")


def _hinted(i: Instruction) -> list[str]:
    """Modifiers that only say where a cache is to keep something."""
    return [m for m in i.modifiers if m.startswith(("L1::", "L2::"))]


def _policy(i: Instruction) -> int:
    """The number of operands at the end that are a cache policy."""
    return int(i.has("L2::cache_hint"))


def _access(i: Instruction) -> tuple[str, tuple[Operand, ...], str]:
    """The common part of ld and st: a statement that makes `evo_asm_at`, the registers, the type of one."""
    vectors = [m for m in i.modifiers if m in ("v2", "v4", "v8")]
    i.only(*SPACES, *SCOPES, *ORDERED, *HINTS, *vectors, *_hinted(i))
    count(i.operands, 2 + _policy(i))
    where, registers = i.operands[:2] if i.opcode == "st" else i.operands[1::-1]
    each = members(registers)
    if len(each) != (int(vectors[0][1:]) if vectors else 1):
        raise NotEmulated(i.text)
    at = f"char* const evo_asm_at = {place(i, where, len(each) * WIDTHS[i.type] // 8)};"
    if set(i.modifiers) & set(ORDERED):
        at += " evo::tick();"
    kind = CPP[f"{'s' if i.type.startswith('s') else 'u'}{WIDTHS[i.type]}"]
    return at, each, kind


def _load(i: Instruction) -> str:
    at, registers, kind = _access(i)
    size = WIDTHS[i.type] // 8
    parts = [
        f"{to(r)} = static_cast<decltype({to(r)})>(evo::ptx::loaded<{kind}>(evo_asm_at + {n * size}));"
        for n, r in enumerate(registers)
    ]
    return " ".join([at, *parts])


def _store(i: Instruction) -> str:
    at, registers, kind = _access(i)
    size = WIDTHS[i.type] // 8
    parts = [f"evo::ptx::stored<{kind}>(evo_asm_at + {n * size}, {value(r, i.type)});" for n, r in enumerate(registers)]
    return " ".join([at, *parts])


ATOMIC: Mapping[str, str] = {
    "add": "a + b", "min": "evo::ptx::least(a, b)", "max": "evo::ptx::greatest(a, b)", "and": "a & b", "or": "a | b",
    "xor": "a ^ b", "inc": "a >= b ? 0 : a + 1", "dec": "a == 0 || a > b ? b : a - 1", "exch": "b",
}  # fmt: skip


def _atomic(i: Instruction) -> str:
    """atom, and red, which has no result."""
    i.only(*SPACES, *SCOPES, *ORDERED, *ATOMIC, "cas", "noftz", *_hinted(i))
    operations = [m for m in i.modifiers if m in (*ATOMIC, "cas")]
    first = int(i.opcode == "atom")
    count(i.operands, first + 2 + _policy(i) + int(operations == ["cas"]))
    word = UNSIGNED[WIDTHS[i.type]]
    at = place(i, i.operands[first], WIDTHS[i.type] // 8)
    given = [f"static_cast<std::uint64_t>({value(operand, i.type)})" for operand in i.operands[first + 1 :]]
    if operations == ["cas"]:
        new = f"static_cast<{word}>(evo_asm_old == static_cast<{word}>({given[0]}) ? {given[1]} : evo_asm_old)"
    else:
        change = f"[](auto a, auto b) {{ return {ATOMIC[operations[0]]}; }}"
        bits = f"evo::ptx::Apply<{CPP[i.type]}>::bits({change}, std::uint64_t(evo_asm_old), {given[0]})"
        new = f"static_cast<{word}>({bits})"
    done = f"evo::ptx::exchanged<{word}>({at}, [&]({word} evo_asm_old) {{ return {new}; }})"
    if not first:
        return f"{done};"
    result = to(i.operands[0])
    return f"{result} = static_cast<decltype({result})>({done});"


def _copy_async(i: Instruction) -> str:
    """cp.async.ca and cp.async.cg (chapter 9.7.9.25.3.1); with fewer bytes of the source the rest are zeros."""
    i.only("async", "ca", "cg", *SHARED, "global", *_hinted(i), types=0)
    given = i.operands[: len(i.operands) - _policy(i)]
    count(given, 3, 4)
    size = given[2]
    if isinstance(size, Immediate) and int(size.text, 0) not in ((16,) if i.has("cg") else (4, 8, 16)):
        raise NotEmulated(i.text)
    taken = value(size)
    if len(given) == 4:
        ignored = isinstance(given[3], Register) and given[3].width == 1
        taken = f"({value(given[3])} ? 0 : {value(size)})" if ignored else value(given[3])
    return f"evo::ptx::copy_async({address(given[0])}, {address(given[1])}, {value(size)}, {taken}, {LINE});"


def _copies_awaited(i: Instruction) -> str:
    """cp.async.commit_group, .wait_group and .wait_all."""
    if i.has("wait_all"):
        return "evo::commit_copies(); evo::await_copies(0);"
    if i.has("commit_group"):
        return "evo::commit_copies();"
    count(i.operands, 1)
    return f"evo::await_copies({value(i.operands[0])});"


def _nothing(i: Instruction) -> str:
    """Emulates instructions that make a kernel faster or order memory, which one thread at a time sees in order."""
    return "evo::tick();" if i.opcode in ("fence", "membar", "nanosleep") else ";"


def _policy_made(i: Instruction) -> str:
    return f"{to(i.operands[0])} = 0;"


MEMORY: Mapping[str, Emit] = {
    "ld": _load, "ldu": _load, "st": _store, "atom": _atomic, "red": _atomic,
    "cp.async.ca": _copy_async, "cp.async.cg": _copy_async, "cp.async.commit_group": _copies_awaited,
    "cp.async.wait_group": _copies_awaited, "cp.async.wait_all": _copies_awaited, "createpolicy": _policy_made,
    **dict.fromkeys(("fence", "membar", "nanosleep", "prefetch", "prefetchu", "applypriority"), _nothing),
    **dict.fromkeys(("griddepcontrol", "setmaxnreg", "pmevent"), _nothing),
}  # fmt: skip


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
