"""Two operators of one name: the axpb of tests/data, and one that subtracts."""

from __future__ import annotations

import shutil
from pathlib import Path

AXPB = Path(__file__).parents[1] / "data" / "axpb"
CHANGES = (
    ("reference.py", "alpha * x + b", "alpha * x - b"),
    ("reference.py", "b.add(x, alpha=alpha)", "(-b).add(x, alpha=alpha)"),
    ("naive.cpp", "+ load(b[i])", "- load(b[i])"),
    ("naive.cu", "+ load(b[i])", "- load(b[i])"),
)


def difference(folder: Path) -> Path:
    """The folder of an operator, made below `folder`, that is called axpb too and computes alpha * x - b."""
    made = folder / "axpb"
    shutil.copytree(AXPB, made)
    for name, plus, minus in CHANGES:
        text = (made / name).read_text()
        assert plus in text
        (made / name).write_text(text.replace(plus, minus))
    return made
