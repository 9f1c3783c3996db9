"""The reference of keys and functions: nothing is left out, nothing is without a meaning."""

from __future__ import annotations

import json
import re

import pytest
from typer.testing import CliRunner

from evo.cli.commands import app
from evo.config import STRATEGIES, RunConfig
from evo.report.reference import Page, operator_pages, run_pages
from mutators.registry import MUTATORS
from operators.catalog import FUNCTIONS
from operators.definition.reading import TABLES
from operators.plan import keys as plan_keys
from tests.structure import ROOT

PAGES = {"operators": ROOT / "operators/README.md", "run": ROOT / "evo/docs/cli.md"}


@pytest.fixture(scope="module")
def pages() -> dict[str, Page]:
    made = [*operator_pages(), *run_pages()]
    assert len({page.title for page in made}) == len(made)
    return {page.title: page for page in made}


def test_every_key_of_operator_toml_and_headers_is_listed(pages: dict[str, Page]) -> None:
    for table, model in TABLES.items():
        page = pages[f"operator.toml {table}".strip()]
        assert [entry.name for entry in page.entries] == list(model.model_fields)
    for table, keys in plan_keys.TABLES.items():
        assert [entry.name for entry in pages[f"kernel header {table}".strip()].entries] == list(keys)
    assert [entry.name.removesuffix("(...)") for entry in pages["reference.py"].entries] == list(FUNCTIONS)


def test_every_setting_of_runs_and_strategies_and_every_mutator_is_listed(pages: dict[str, Page]) -> None:
    assert [entry.name for entry in pages["run"].entries] == list(RunConfig.model_fields)
    ours = {name for name, path in STRATEGIES.items() if path.startswith("evo.")}  # tests add some
    assert {title.split()[-1] for title in pages if title.startswith("[settings]")} == ours
    assert [entry.name for entry in pages["mutators"].entries] == list(MUTATORS)


def test_every_entry_has_a_meaning_and_a_type_in_words(pages: dict[str, Page]) -> None:
    for title, page in pages.items():
        assert page.about.endswith("."), title
        assert page.entries, title
        for entry in page.entries:
            assert len(entry.meaning) > 5, f"{title} {entry.name}"
            assert not re.search(r"[<>\[\]](?! ?[=\d])|typing|None", entry.type), f"{title} {entry.name}: {entry.type}"


def test_types_and_defaults_are_those_of_the_model(pages: dict[str, Page]) -> None:
    found = {entry.name: (entry.type, entry.default) for entry in pages["operator.toml [[tensor]]"].entries}
    assert found["shape"] == ("list of formula", "required")
    assert found["dtype"] == ("text", '"T"')
    assert found["bounded"] == ("true or false", "none")
    islands = {entry.name: (entry.type, entry.default) for entry in pages["[settings] of strategy islands"].entries}
    assert islands["islands"] == ("integer >= 1 <= 64", "2")


@pytest.mark.parametrize(("command", "word"), [("operators", "exact_integers"), ("run", "migration_interval")])
def test_the_command_line_prints_it_and_a_page_says_so(command: str, word: str) -> None:
    printed = CliRunner().invoke(app, [command, "--schema"])
    assert printed.exit_code == 0
    assert word in printed.output
    listed = json.loads(CliRunner().invoke(app, [command, "--schema", "--json"]).output)
    assert any(entry["name"] == word for page in listed for entry in page["entries"])
    assert f"evo {command} --schema" in PAGES[command].read_text(encoding="utf-8")
