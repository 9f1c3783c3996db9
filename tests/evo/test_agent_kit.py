"""The kit of a coding agent: files that its client reads, added to what is there, and taken back to the letter."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from evo.outside.kit import CLIENTS, installed, removed, server_command
from operators.errors import UserError
from tests.evo.test_cli import evo

COMMAND = ["/opt/evo", "mcp", "runs/x y", "--runs", '/tmp/a "b" \\c']
SERVED = {"command": COMMAND[0], "args": COMMAND[1:]}
EXISTING = {
    "claude": ("{}", '{ "mcpServers": {} }\n',
               '{"mcpServers": {"a": {"command": "x", "args": ["{", "}"]}}, "z": [1,\t2]}',
               '{\n\t"z": {"mcpServers": 1},\n\t"mcpServers": {\n\t\t"a": {"type": "http", "url": "https://e.org"}\n\t}\n}\n'),
    "codex": ("", "model = 'o5'", "# mine\n[mcp_servers.a]\ncommand = 'x'\n\n", "a = 1\r\n"),
    "cursor": ('{"other": null}',),
    "vscode": ('{"inputs": [], "servers": {"a": {"type": "stdio", "command": "x"}}}\n',),
}  # fmt: skip
PAGES = (None, "", "# Ours\n\nNo tabs.", "# Ours\n", "# Ours\n\n\n")


def tree(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def apply(changes: Any) -> None:
    for change in changes:
        change.apply()


def servers(folder: Path, name: str) -> dict[str, Any]:
    """The servers of a project as its client reads them."""
    text = (folder / CLIENTS[name].config).read_text(encoding="utf-8")
    read: dict[str, Any] = tomllib.loads(text) if name == "codex" else json.loads(text)
    found: dict[str, Any] = read[
        {"claude": "mcpServers", "cursor": "mcpServers", "vscode": "servers"}.get(name, "mcp_servers")
    ]
    return found


@pytest.mark.parametrize("name", CLIENTS)
def test_a_new_project_gets_what_each_client_documents_and_loses_it_again(name: str, tmp_path: Path) -> None:
    apply(installed(tmp_path, name, COMMAND))
    entry = servers(tmp_path, name)["kernel-evo"]
    if name == "codex":
        assert entry.pop("startup_timeout_sec") >= 60 and entry.pop("tool_timeout_sec") > 600
        assert entry == SERVED
    else:
        assert entry == {"type": "stdio", **SERVED}
    page = (tmp_path / CLIENTS[name].page).read_text()
    for word in ("next_question", "plan", "`check`", "confirmed", "Budget", "Floor", "Stagnation"):
        assert word in page
    if name in ("claude", "cursor"):
        _, head, _ = page.split("---\n", 2)
        told = yaml.safe_load(head)
        assert 20 < len(told["description"]) <= 1024
        assert told.get("name") == ("kernel-evo" if name == "claude" else None)
    once = tree(tmp_path)
    apply(installed(tmp_path, name, COMMAND))
    assert tree(tmp_path) == once, "installing again changes nothing"
    apply(removed(tmp_path, name))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("name", "text"), [(name, text) for name, texts in EXISTING.items() for text in texts])
@pytest.mark.parametrize("page", PAGES)
def test_what_is_there_stays_and_is_given_back_to_the_letter(
    name: str, text: str, page: str | None, tmp_path: Path
) -> None:
    config, shared = tmp_path / CLIENTS[name].config, tmp_path / CLIENTS[name].page
    config.parent.mkdir(exist_ok=True)
    config.write_bytes(text.encode())
    if page is not None and shared.name == "AGENTS.md":
        shared.write_bytes(page.encode())
    before = tree(tmp_path)
    read = tomllib.loads if name == "codex" else json.loads
    apply(installed(tmp_path, name, ["/elsewhere", "mcp"]))
    apply(installed(tmp_path, name, COMMAND))
    now = read(config.read_bytes().decode())
    assert servers(tmp_path, name).pop("kernel-evo")["args"] == COMMAND[1:]
    table = CLIENTS[name].table
    now[table].pop("kernel-evo")
    old = read(text)
    assert now == {**old, table: old.get(table, {})}
    assert page is None or shared.name != "AGENTS.md" or shared.read_text().startswith(page)
    apply(removed(tmp_path, name))
    assert tree(tmp_path) == before


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@given(
    st.dictionaries(st.text(max_size=8), JSON, max_size=3),
    st.none() | st.dictionaries(st.text(max_size=8), JSON, max_size=3),
    st.sampled_from([None, 0, 2, 4]),
    st.booleans(),
)
def test_any_configuration_comes_back_to_the_letter(
    tmp_path_factory: pytest.TempPathFactory, top: dict[str, Any], table: dict[str, Any] | None, indent: int | None,
    is_first: bool,
) -> None:  # fmt: skip
    folder = tmp_path_factory.mktemp("project")
    top.pop("servers", None)
    inner = {} if table is None else {"servers": {k: v for k, v in table.items() if k != "kernel-evo"}}
    whole = {**inner, **top} if is_first else {**top, **inner}
    (folder / ".vscode").mkdir()
    (folder / ".vscode" / "mcp.json").write_text(json.dumps(whole, indent=indent))
    before = tree(folder)
    apply(installed(folder, "vscode", COMMAND))
    assert servers(folder, "vscode") == {**whole.get("servers", {}), "kernel-evo": {"type": "stdio", **SERVED}}
    apply(removed(folder, "vscode"))
    assert tree(folder) == before


def test_what_the_user_added_since_stays(tmp_path: Path) -> None:
    apply(installed(tmp_path, "claude", COMMAND))
    apply(installed(tmp_path, "codex", COMMAND))
    path = tmp_path / ".mcp.json"
    whole = json.loads(path.read_text())
    whole["mcpServers"]["later"] = {"command": "x"}
    path.write_text(json.dumps(whole))
    for name in (".codex/config.toml", "AGENTS.md"):
        with (tmp_path / name).open("a") as file:
            file.write("# mine\n")
    apply(removed(tmp_path, "claude"))
    apply(removed(tmp_path, "codex"))
    assert json.loads(path.read_text()) == {"mcpServers": {"later": {"command": "x"}}}
    assert (tmp_path / "AGENTS.md").read_text() == (tmp_path / ".codex" / "config.toml").read_text() == "# mine\n"


def test_a_page_of_two_clients_stays_until_the_last_is_removed(tmp_path: Path) -> None:
    apply(installed(tmp_path, "codex", COMMAND))
    apply(installed(tmp_path, "vscode", COMMAND))
    assert (tmp_path / "AGENTS.md").read_text().count("## Begin") == 1
    apply(removed(tmp_path, "codex"))
    assert (tmp_path / "AGENTS.md").exists() and not (tmp_path / ".codex").exists()
    apply(removed(tmp_path, "vscode"))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "file", "text", "words"),
    [
        ("vscode", ".vscode/mcp.json", '{\n  // mine\n  "servers": {}\n}', "no plain JSON"),
        ("claude", ".mcp.json", '{"mcpServers": []}', "was expected"),
        ("claude", ".mcp.json", "[]", "was expected"),
        ("claude", ".claude/skills/kernel-evo/SKILL.md", "mine", "of another origin"),
        ("codex", ".codex/config.toml", "[mcp_servers.kernel-evo]\ncommand = 'x'\n", "of another origin"),
        ("codex", ".codex/config.toml", "[a\n", "no TOML"),
    ],
)
def test_what_cannot_be_added_to_is_one_line_and_changes_nothing(
    name: str, file: str, text: str, words: str, tmp_path: Path
) -> None:
    (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / file).write_text(text)
    with pytest.raises(UserError, match=words) as caught:
        installed(tmp_path, name, COMMAND)
    assert "\n" not in str(caught.value)
    assert tree(tmp_path) == {file: text.encode()}
    assert all(
        change.before == change.after for change in removed(tmp_path, name) if change.name == file or not change.before
    )


def test_the_command_shows_the_diff_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    words = ("agent", "install", "--client", "claude", "--project", str(tmp_path))
    code, out, said = evo(monkeypatch, capsys, *words)
    assert code == 2 and "nothing was changed" in said
    assert '+    "kernel-evo": {' in out and "+## When to stop" in out and tree(tmp_path) == {}
    monkeypatch.setattr("evo.cli.outside.find_spec", lambda _: None)
    code, _, said = evo(monkeypatch, capsys, *words, "--yes")
    assert code == 0 and "evo mcp needs the package mcp: " in said and "[mcp]" in said
    entry = servers(tmp_path, "claude")["kernel-evo"]
    assert [entry["command"], *entry["args"]][: len(server_command())] == server_command()
    undo = ("agent", "remove", "--client", "claude", "--project", str(tmp_path))
    code, out, _ = evo(monkeypatch, capsys, *undo, "--yes")
    assert code == 0 and '-    "kernel-evo": {' in out and tree(tmp_path) == {}
    code, out, _ = evo(monkeypatch, capsys, *undo)
    assert (code, out) == (0, "nothing is to be changed\n")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("begin", "--client", "claude"), "write evo agent install"),
        (("install", "--client", "emacs"), "emacs"),
        (("install", "--client", "claude", "--project", "/no/such/place"), "no such folder"),
        (("install", "--client", "claude", "--run", "none"), "none"),
    ],
)
def test_bad_words_are_one_line(
    words: tuple[str, ...], told: str, monkeypatch: pytest.MonkeyPatch, capsys: Any, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    code, _, said = evo(monkeypatch, capsys, "agent", *words, "--yes")
    assert code == 2 and told in said and said.count("\n") == 1
