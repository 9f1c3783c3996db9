"""Forbidden text of a kernel file, found before a compiler opens anything for it.

A tripwire for plain attempts and the reason why later findings can be trusted: without directives that forge line
numbers, what the preprocessor attributes to the kernel is the kernel's. Never the only guard.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

_SPLICE = re.compile(r"\\[ \t\f\v]*\r?\n")
_TOKEN = re.compile(
    r"""(?P<comment>//[^\n]*+|/\*(?:[^*]++|\*(?!/))*+\*/)
      |(?P<endless>/\*(?:[^*]++|\*(?!/))*+|(?:"(?:[^"\\\n]|\\.)*+(?!")|'(?:[^'\\\n]|\\.)*+(?!'))[^\n]*+)
      |(?P<raw>\b(?:u8|[uUL])?R")
      |(?P<string>\b(?:u8|[uUL])?"(?:[^"\\\n]|\\.)*+"|\b(?:u8|[uUL])?'(?:[^'\\\n]|\\.)*+')
      |(?P<plain>"(?:[^"\\\n]|\\.)*+"|'(?:[^'\\\n]|\\.)*+')
      |(?P<number>\.?\d(?:[eEpP][+-]|'\w|[\w.])*+)
      |(?P<name>[^\W\d]\w*+)
      |(?P<newline>\n)
      |(?P<blank>[^\S\n]++)
      |(?P<trigraph>\?\?[=/'()!<>-])
      |(?P<hash>\#|%:)
      |(?P<other>.)""",
    re.VERBOSE | re.DOTALL,
)
_HEADER = re.compile(r"""\s*(?:<([\w+.-]+(?:/[\w+.-]+)*)>|"([\w+.-]+(?:/[\w+.-]+)*)")\s*""")
_INCLUDE = re.compile(rf"(?:\#|%:)[^\S\n]*include{_HEADER.pattern}")
_PROBED_HEADER = re.compile(rf"\s*\({_HEADER.pattern}\)")
_PRAGMA_TEXT = re.compile(r'\s*\(\s*"([^"\\\n]*)"\s*\)')
_DIRECTIVES = frozenset((
    "define", "undef", "if", "ifdef", "ifndef", "elif", "else", "endif", "include", "pragma", "error", "warning",
))  # fmt: skip
_PRAGMAS = re.compile(
    r"\s*(?:omp\b|unroll\b|nounroll\b|once\b|message\b|STDC\b|nv_\w+|diag_\w+"
    r"|GCC\s+(?:ivdep|unroll|optimize|target|diagnostic|push_options|pop_options)\b)"
)


@dataclass(frozen=True)
class Dialect:
    """The language that kernels of a target may use."""

    header_allowed: Callable[[str], bool]
    headers: str
    """Headers in words, for messages."""
    assembly: bool
    """Whether inline assembly is allowed."""


class Token(NamedTuple):
    """One word of C++ and where it stands."""

    kind: str
    text: str
    begin: int
    end: int


def forbidden(source: str, file: str, dialect: Dialect) -> str | None:
    """The first thing in a kernel file that its dialect excludes, with its line; None when there is none."""
    text, spliced_at = _spliced(source)
    for position, problem in _problems(text, dialect):
        line = 1 + text.count("\n", 0, position) + bisect_right(spliced_at, position)
        return f"{file}:{line}: {problem}"
    return None


def hoisted(source: str) -> tuple[tuple[str, ...], str]:
    """The headers that a kernel file includes, and the file without these directives, its lines under their numbers.

    So headers can come before the kernel's first line, out of reach of its macros: a header's text that a kernel's
    macros change is the kernel's, and could not be told from it. Holds only for sources that `forbidden` found nothing
    in.
    """
    text, joints = _spliced(source)
    ends = [match.start() for match in re.finditer("\n", text)]
    headers: list[str] = []
    parts, at, line_start = [], 0, True
    for token in tokenized(text):
        if token.kind in ("comment", "blank"):
            continue
        if token.kind == "hash" and line_start and (include := _INCLUDE.match(text, token.begin)):
            headers.append(include[1] or include[2])
            parts.append(text[at : token.begin])
            at = include.start() + len(include[0].rstrip())
        line_start = token.kind == "newline"
    lost = Counter(bisect_left(ends, joint) for joint in joints)
    lines = "".join((*parts, text[at:])).split("\n")
    return tuple(dict.fromkeys(headers)), "\n".join(line + "\n" * lost[number] for number, line in enumerate(lines))


def without_comments(code: str) -> str:
    """The meaning of C++ code: its tokens, without comments and white space but for what a directive needs.

    Two texts of which it is the same are the same program, unless they look at their own line numbers.
    """
    parts: list[str] = []
    in_directive, line_start, operator_end = False, True, -1
    for token in tokenized(_spliced(code)[0]):
        if token.kind in ("comment", "blank"):
            parts += [" "] if in_directive and parts[-1] != " " else []
            continue
        if token.kind == "newline":
            if in_directive:
                parts[-1] = parts[-1].rstrip(" ") + "\n"
            in_directive, line_start = False, True
            continue
        if token.kind == "hash" and line_start:
            in_directive = True
            parts.append("\n")
        if token.begin == operator_end and token.text in _OPERATORS:  # `x + ++y` is not `x++ + y`
            parts[-1] = parts[-1].removesuffix("\x1f")
        operator_end = token.end if token.text in _OPERATORS else -1
        parts.append(token.text if in_directive else f"{token.text}\x1f")
        line_start = False
    return "".join(parts)


def smuggled(preprocessed: str) -> str | None:
    """The part of a kernel's text, as macros have made it, that would go to the assembler as it is: inline assembly, or
    the argument of an attribute; or why it cannot be read. None: nothing.

    Macros are those of headers too. Holds only for sources that `forbidden` found nothing in.
    """
    if len(preprocessed) > MAX_EXPANDED:
        return f"{len(preprocessed)} characters of code; at most {MAX_EXPANDED} are allowed"
    names: list[Token] = []
    for line in preprocessed.splitlines():
        if not _LINE_MARKER.match(line):
            names += [token for token in tokenized(line) if token.kind not in ("blank", "comment", "newline")]
    arguments: list[str] = []
    """By open parenthesis: the attribute whose argument it begins, the one around it included; empty for none."""
    for number, token in enumerate(names):
        if token.kind == "endless":
            return "a quote or a comment that nothing closes"
        if token.text in ASSEMBLY:
            return "inline assembly, which is not allowed"
        if token.text == "(":
            word = names[number - 1].text if number else ""
            arguments.append(word if word in _NAMING else arguments[-1] if arguments else "")
        elif token.text == ")" and arguments:
            arguments.pop()
        elif token.kind in ("plain", "string", "raw") and arguments and arguments[-1]:
            around = [other.text for other in names[number - 2 : number + 2]]
            if not _is_name(around):
                return f"an attribute `{arguments[-1]}(...)` with more than a name in it, which is not allowed"
    return None


def _is_name(around: list[str]) -> bool:
    """Whether a string, the third of these words, is a plain name and all that an attribute has for an argument."""
    match around:
        case [word, "(", text, ")"]:
            return word in _NAMING and re.fullmatch(r'"[\w.$]+"', text, re.ASCII) is not None
    return False


_OPERATORS = frozenset("+-*/%=<>!&|^~.:?")
"""Characters that make other operators where they touch."""
MAX_EXPANDED = 1 << 20
"""Characters of a kernel file after its macros: four times as many as it may have."""
_LINE_MARKER = re.compile(r'# \d+ "')
ASSEMBLY = frozenset(("asm", "__asm", "__asm__"))
"""Words that begin inline assembly."""
_NAMING = frozenset(
    f"{mark}{name}{mark}" for name in ("section", "alias", "weakref", "symver", "ifunc") for mark in ("", "__")
)
"""Attributes whose argument, the name of a section or symbol, GCC copies into its assembly without a look."""


def _spliced(source: str) -> tuple[str, list[int]]:
    """The text with continued lines joined, and where in it each joint is."""
    parts, joints, length, last = [], [], 0, 0
    for match in _SPLICE.finditer(source):
        parts.append(source[last : match.start()])
        length += match.start() - last
        joints.append(length)
        last = match.end()
    parts.append(source[last:])
    return "".join(parts), joints


def tokenized(text: str) -> Iterator[Token]:
    """Return the words of a text in C++, blanks and line ends among them, as the compiler would part it."""
    for match in _TOKEN.finditer(text):
        yield Token(str(match.lastgroup), match[0], match.start(), match.end())


def _problems(text: str, dialect: Dialect) -> Iterator[tuple[int, str]]:
    line_start, directive = True, ""
    tokens = tokenized(text)
    for token in tokens:
        if token.kind in ("comment", "blank"):
            continue
        if token.kind == "newline":
            line_start, directive = True, ""
            continue
        if token.kind == "hash" and line_start:
            directive, problem = _directive(text, token, tokens, dialect)
            if problem:
                yield token.begin, problem
            line_start = directive == "newline"
            continue
        line_start = False
        if problem := _token_problem(text, token, directive, dialect):
            yield token.begin, problem


def _directive(text: str, hash_: Token, tokens: Iterator[Token], dialect: Dialect) -> tuple[str, str | None]:
    """The directive's name and what is wrong with it."""
    name = next((t for t in tokens if t.kind != "blank"), None)
    if name is None or name.kind == "newline":
        return "newline", None
    shown = text[hash_.begin : text.find("\n", hash_.begin) % (len(text) + 1)].strip()[:60]
    rest = text[name.end : text.find("\n", name.end) % (len(text) + 1)]
    argument = re.split(r"//|/\*", rest)[0]
    if name.text not in _DIRECTIVES:
        return name.text, f"`{shown}`: a kernel may use the directives {', '.join(sorted(_DIRECTIVES))}"
    if name.text == "include":
        found = _HEADER.fullmatch(argument)
        if not found or not _allowed(found[1] or found[2], dialect):
            return name.text, f"`{shown}`: write the name of {dialect.headers}"
    if name.text == "pragma" and not _PRAGMAS.match(rest):
        return name.text, f"`{shown}`: a kernel may use the pragmas omp, unroll, GCC ivdep, GCC unroll, GCC optimize"
    return name.text, None


def _allowed(header: str, dialect: Dialect) -> bool:
    return ".." not in header.split("/") and dialect.header_allowed(header)


def _token_problem(text: str, token: Token, directive: str, dialect: Dialect) -> str | None:
    if token.kind == "trigraph":
        return f"`{token.text}`: a trigraph; write the character that you mean"
    if token.kind == "raw":
        return "a raw string; a kernel needs none"
    if token.kind == "endless":  # a compiler would read what follows differently
        opening = token.text[0]
        return "a comment that never ends" if opening == "/" else f"{opening} that nothing closes on its line"
    if token.kind == "other" and token.text < " ":
        return f"the control character {token.text!r}"
    if token.kind != "name" or directive in ("error", "warning"):
        return None
    if token.text in ASSEMBLY and not dialect.assembly:
        return f"`{token.text}`: no inline assembly; write intrinsics, such as those of <immintrin.h>"
    if token.text in ("__has_include", "__has_include_next", "__has_embed"):
        probed = _PROBED_HEADER.match(text, token.end)
        if not probed or not _allowed(probed[1] or probed[2], dialect):
            return f"`{token.text}`: write the name of {dialect.headers}"
    if token.text == "_Pragma":
        found = _PRAGMA_TEXT.match(text, token.end)
        if not found or not _PRAGMAS.match(found[1]):
            return '`_Pragma`: write it as _Pragma("omp ...") or another pragma that a kernel may use'
    return None
