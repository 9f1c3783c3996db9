"""Plain English: docstrings name their subject, and riddle words stand neither there nor in pages."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.evo.test_pages import PAGES, name
from tests.structure import ROOT

OPENINGS = ("Of", "So", "That", "As", "What", "How")
"""First words of docstrings that only refer to the line above, or put a question in the subject's place."""
MODULE_OPENINGS = ("Whether", "By", "Where", "It")
"""First words of a module's docstring that keep back what the module is."""
RIDDLES = re.compile(r"\b(?:nobody|whoever|somebody|anybody|errand)\b", re.IGNORECASE)
PACKAGES = ("evo", "fitness", "mutators", "operators", "tests")
FINGERPRINTED = tuple(
    f"operators/{operator}/reference.py"
    for operator in (
        "activation/gelu",
        "activation/softplus",
        "algorithmic/fft",
        "algorithmic/prefix_sum",
        "algorithmic/simpson_int",
        "dense/matrix_power",
        "llm/rope",
        "llm/softmax_attention",
        "llm/triangle_attention",
        "loss/cross_entropy_loss",
        "normalization/rms_norm",
        "normalization/softmax",
    )
)
"""Files whose text is a part of their operator's definition: another docstring would make earlier verdicts void."""


def docstrings(path: Path) -> Iterator[tuple[int, str]]:
    """The docstrings of a file, those of constants and fields among them, with their lines."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        body = getattr(node, "body", None)
        for statement in body if isinstance(body, list) else ():
            match statement:
                case ast.Expr(value=ast.Constant(value=str(text))):
                    yield statement.lineno, text


@pytest.mark.parametrize("package", PACKAGES)
def test_docstrings_begin_with_their_subject(package: str) -> None:
    found = [
        f"{name}:{line}: {text.splitlines()[0]}"
        for path in sorted((ROOT / package).rglob("*.py"))
        if (name := str(path.relative_to(ROOT))) not in FINGERPRINTED
        for line, text in docstrings(path)
        if re.match(rf"(?:{'|'.join(OPENINGS)})\b", text)
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize("package", PACKAGES)
def test_modules_begin_with_what_they_are(package: str) -> None:
    found = [
        f"{path.relative_to(ROOT)}: {text.splitlines()[0]}"
        for path in sorted((ROOT / package).rglob("*.py"))
        if path.name != "reference.py" and (text := ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))))
        if re.match(rf"(?:{'|'.join(MODULE_OPENINGS)})\b", text)
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize("package", PACKAGES)
def test_docstrings_name_who_does_what(package: str) -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}: {riddle[0]}"
        for path in sorted((ROOT / package).rglob("*.py"))
        for line, text in docstrings(path)
        if (riddle := RIDDLES.search(text))
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize("page", [page for page in PAGES if page.parts[-2:] != ("redteam", "README.md")], ids=name)
def test_pages_name_who_does_what(page: Path) -> None:
    assert RIDDLES.findall(page.read_text(encoding="utf-8")) == []
