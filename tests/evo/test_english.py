"""Docstrings name their subject: none begins with a word that only refers to the line above it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.structure import ROOT

OPENINGS = ("Of", "So", "That", "As")
DONE = ("evo", "mutators", "operators")
"""Packages that are held to it; `fitness` and `tests` are not yet."""
FINGERPRINTED = ("operators/algorithmic/simpson_int/reference.py", "operators/llm/triangle_attention/reference.py")
"""Files whose text is a part of their operator's definition: another docstring would make earlier verdicts void."""


def docstrings(path: Path) -> Iterator[tuple[int, str]]:
    """The docstrings of a file, those of constants and fields among them, with their lines."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        body = getattr(node, "body", None)
        for statement in body if isinstance(body, list) else ():
            match statement:
                case ast.Expr(value=ast.Constant(value=str(text))):
                    yield statement.lineno, text


@pytest.mark.parametrize("package", DONE)
def test_docstrings_begin_with_their_subject(package: str) -> None:
    found = [
        f"{name}:{line}: {text.splitlines()[0]}"
        for path in sorted((ROOT / package).rglob("*.py"))
        if (name := str(path.relative_to(ROOT))) not in FINGERPRINTED
        for line, text in docstrings(path)
        if re.match(rf"(?:{'|'.join(OPENINGS)})\b", text)
    ]
    assert not found, "\n".join(found)
