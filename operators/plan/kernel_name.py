"""The name of a launch's `kernel`: the text goes to the compiler, so it is a name and nothing else."""

from __future__ import annotations

import re
from collections.abc import Callable

from operators.definition.spec import CPP_KEYWORDS

MAX_KERNEL_CHARACTERS = 200

_TYPE_WORDS = frozenset(
    ("bool", "char", "const", "double", "false", "float", "int", "long", "short", "signed", "true", "unsigned")
)
_NAME_TOKEN = re.compile(r"\s+|[A-Za-z_]\w*|::|[<>(),]|\d+(?:[uU]?[lL]{0,2})\b", re.ASCII)
_CLOSING = {"<": ">", "(": ")"}


def check_function_name(text: str) -> None:
    """Raise ValueError unless `text` is a C function's name."""
    if not re.fullmatch(r"[A-Za-z_]\w*", text, re.ASCII) or text in CPP_KEYWORDS or len(text) > MAX_KERNEL_CHARACTERS:
        raise ValueError('on cpu `kernel` is the plain name of an extern "C" function, such as softmax')


def check_name_expression(text: str, hint: Callable[[str], str | None]) -> None:
    """Raise ValueError unless `text` is a C++ name, possibly qualified and with template arguments, and nothing else.

    The text is handed to the compiler, so only names, `::`, `<>`, `()`, commas and integers may stand in it. `hint`
    says of a name why it may not stand there.
    """
    if len(text) > MAX_KERNEL_CHARACTERS:
        raise ValueError(f"a kernel's name has at most {MAX_KERNEL_CHARACTERS} characters")
    open_brackets: list[str] = []
    position, previous = 0, ""
    while position < len(text):
        match = _NAME_TOKEN.match(text, position)
        if not match:
            raise ValueError(f"`{text[position]}` cannot stand in a kernel's name; write name or name<BLOCK, T>")
        position = match.end()
        token = match[0]
        if token.isspace():
            continue
        _check_token(token, previous, open_brackets, hint)
        previous = token
    if open_brackets:
        raise ValueError(f"`{open_brackets[-1]}` is not closed")
    if not previous or previous in ("::", ","):
        raise ValueError("the name is incomplete; write name or name<BLOCK, T>")


def _check_token(token: str, previous: str, open_brackets: list[str], hint: Callable[[str], str | None]) -> None:
    if token in _CLOSING:
        if (token == "(" and not open_brackets) or not previous:
            raise ValueError(f"`{token}` cannot stand here; write name or name<BLOCK, T>, without arguments")
        open_brackets.append(token)
    elif token in (">", ")"):
        if not open_brackets or _CLOSING[open_brackets.pop()] != token:
            raise ValueError(f"`{token}` has no opening bracket")
        if previous == ",":
            raise ValueError(f"`,` is followed by `{token}`")
    elif token == ",":
        if not open_brackets or previous in (",", "<", "(", "::"):
            raise ValueError("`,` cannot stand here")
    elif token != "::":
        if not open_brackets and previous not in ("", "::"):
            raise ValueError(f"`{token}` cannot follow `{previous}`; write name or name<BLOCK, T>")
        if not open_brackets and (token in _TYPE_WORDS or token[0].isdigit()):
            raise ValueError(f"`{token}` is not a kernel's name")
        if token in CPP_KEYWORDS and token not in _TYPE_WORDS:
            raise ValueError(f"`{token}` is a word of C++ that cannot stand in a kernel's name")
        if open_brackets and previous != "::" and (problem := hint(token)):
            raise ValueError(problem)
