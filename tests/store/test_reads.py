"""The engine's own queries, by name."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from evo.store import opened
from evo.store.reads import FOLDER, SECTION, USING, filled, own_query
from tests.store.story import stored

ROOT = Path(__file__).parents[2]


def test_every_query_is_asked_somewhere_and_fits_the_schema(tmp_path: Path) -> None:
    product = "\n".join(file.read_text(encoding="utf-8") for file in (ROOT / "evo").rglob("*.py"))
    parts = {
        f"{file.stem}.{part}"
        for file in FOLDER.glob("*.sql")
        for names in USING.findall(file.read_text(encoding="utf-8"))
        for part in re.findall(r"\w+", names)
    }
    texts = {file.stem: file.read_text(encoding="utf-8") for file in FOLDER.glob("*.sql")}
    queries = [f"{file}.{name}" for file, text in texts.items() for name, _ in SECTION.findall(text)]
    unused = [name for name in queries if name not in parts and f'"{name}"' not in product]
    stored(tmp_path / "run")
    with opened(tmp_path / "run") as one, opened([tmp_path / "run"]) as several:
        for name in queries:
            ready = several if name.startswith("comparison.") else one
            ready(own_query(name)).execute(f"prepare asked as {own_query(name)}").execute("deallocate asked")
    assert queries and not unused


def test_a_query_that_is_printed_has_its_values_in_it() -> None:
    found = filled("report.siblings", task="it's", parents=["a", "b"], most=3)
    assert "task = 'it''s' and parent_id in ('a', 'b')" in found and "<= 3" in found and "$" not in found
    with pytest.raises(KeyError):
        own_query("report.nothing")
