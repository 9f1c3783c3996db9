"""Pages for users: their links resolve, their commands are valid, and the README lists the commands there are."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer
from typer.core import TyperGroup

from evo.cli.commands import app
from mutators.registry import MUTATORS
from operators.catalog import folders
from tests.structure import ROOT
from tests.test_structure import FLOORS

README = ROOT / "README.md"
PAGES = sorted(
    (
        README,
        *(
            page
            for folder in ("evo", "fitness", "mutators", "operators", "tests/redteam")
            for page in (ROOT / folder).rglob("*.md")
        ),
    )
)
MOST_README_LINES = 250
COMMANDS = typer.main.get_command(app)
assert isinstance(COMMANDS, TyperGroup)
INVALID = (*typer.BadParameter.__bases__, KeyError)
"""Errors that the parser raises for a wrong option or argument, and for a command that does not exist."""


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def anchors(page: Path) -> set[str]:
    """The anchors that headings of a page get on the web."""
    titles = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def command_lines(page: Path) -> Iterator[str]:
    """The words behind `evo` of each line of the page's blocks that begins with it."""
    yield from re.findall(r"^    (?:\.venv/bin/)?evo (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)


def parse(words: list[str]) -> None:
    """Raise one of INVALID unless the words are a valid command line."""
    command = COMMANDS.commands[words[0]]
    command.make_context(words[0], words[1:])


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_of_a_page_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        found = (page.parent / path).resolve() if path else page
        assert found.exists(), f"{name(page)}: {target}"
        assert not anchor or anchor in anchors(found), f"{name(page)}: {target}"


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_commands_of_a_page_are_valid(page: Path) -> None:
    for line in command_lines(page):
        try:
            parse(shlex.split(line, comments=True))
        except INVALID as error:
            pytest.fail(f"{name(page)}: evo {line}: {error}")


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_a_new_operator_of_a_page_has_a_name_that_is_free(page: Path) -> None:
    begun = {words[4:].split()[0] for words in command_lines(page) if words.startswith("new ")}
    assert not begun & set(folders())


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_commands_and_options_in_a_text_exist(page: Path) -> None:
    for command, rest in re.findall(r"`evo ([a-z]+)\b([^`]*)`", page.read_text(encoding="utf-8").replace("\n", " ")):
        known = {option for each in COMMANDS.commands[command].params for option in (*each.opts, *each.secondary_opts)}
        used = set(re.findall(r"(?<!\S)--[a-z-]+", rest))
        assert used <= known | {"--help"}, f"{name(page)}: evo {command}{rest}"


def test_the_readme_lists_every_command_as_its_help_does() -> None:
    listed = re.findall(r"^\| `evo (\w+)` \| (.+) \|$", README.read_text(encoding="utf-8"), re.MULTILINE)
    assert listed == [(word, (command.help or "").splitlines()[0]) for word, command in COMMANDS.commands.items()]


def test_the_readme_is_short_and_leads_to_every_page() -> None:
    text = README.read_text(encoding="utf-8")
    assert text.count("\n") <= MOST_README_LINES
    for page in PAGES[1:]:
        if "prompts" not in page.parts and page.parent != ROOT / "operators/shared":
            assert f"]({name(page)})" in text, name(page)


def test_the_architecture_has_the_floors_there_are() -> None:
    text = (ROOT / "evo/ARCHITECTURE.md").read_text(encoding="utf-8")
    _, _, table = text.partition("| rooms | what they are |\n|---|---|\n")
    rows = [re.findall(r"`([\w.]+)`", line.split("|")[1]) for line in table.partition("\n\n")[0].splitlines()]
    assert [sorted(row) for row in reversed(rows)] == [sorted(row.split()) for row in FLOORS["evo"]]


def test_the_files_that_the_architecture_names_are_there() -> None:
    text = (ROOT / "evo/ARCHITECTURE.md").read_text(encoding="utf-8")
    _, _, rest = text.partition("## Where to look first\n")
    folder, named = ROOT, 0
    for line in rest.partition("\n## ")[0].splitlines():
        if heading := re.fullmatch(r"\*\*`(\w+/)`\*\*", line):
            folder = ROOT / heading[1]
        for path in re.findall(r"`([\w/]+\.(?:py|sql|toml|cpp|hpp|j2|md\.j2))`", line):
            named += 1
            assert path.endswith(("/NAME.sql", "/READER.sql")) or (folder / path).is_file(), f"{folder.name}/{path}"
    assert named


def test_the_page_on_mutators_lists_those_there_are() -> None:
    text = (ROOT / "mutators/README.md").read_text(encoding="utf-8")
    assert sorted(re.findall(r"^\| `(\w+)` \| .+ \| (?:yes )?\|$", text, re.MULTILINE)) == sorted(MUTATORS)
