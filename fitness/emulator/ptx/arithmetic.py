"""Instructions that compute: arithmetic, bits, comparisons, conversions, moves."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from fitness.emulator.ptx.operands import (
    CPP,
    FLOATS,
    HALVES,
    ROUNDING,
    SHARED,
    SPACES,
    UNSIGNED,
    Emit,
    count,
    members,
    to,
    value,
)
from fitness.emulator.ptx.reading import WIDTHS, Group, Instruction, NotEmulated, Operand


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
