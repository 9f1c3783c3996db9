"""The kit of a coding agent in a project: its client's MCP configuration, and a page that says how to work here.

Files of a project are changed by insertion alone, so that all else in them stays to the letter, and taken back to what
they were: a change is undone by that text which, with the change, gives the file that is there.
"""

from __future__ import annotations

import json
import shutil
import sys
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import unified_diff
from pathlib import Path
from typing import Any

from operators.errors import UserError
from operators.files import writing

SERVER = "kernel-evo"
SKILL = Path(__file__).with_name("skill.md")
ABOUT = (
    "Write and improve GPU and CPU kernels with kernel-evo: read its questions, build, check, submit, read verdicts."
)
BEGIN, END = "kernel-evo begins", "kernel-evo ends"
"""Words of the lines around what is inserted into a file that is no JSON."""


@dataclass(frozen=True)
class AgentClient:
    """Files of a project that a client of MCP reads."""

    config: str
    table: str
    """Key of the configuration under which servers stand by name."""
    page: str
    """File that it reads for how to work; a shared one gets a section."""
    head: str = ""
    """Beginning of a page of its own."""
    is_typed: bool = False
    """Whether an entry names its transport."""


CLIENTS: Mapping[str, AgentClient] = {
    "claude": AgentClient(
        ".mcp.json", "mcpServers", ".claude/skills/kernel-evo/SKILL.md",
        f"---\nname: {SERVER}\ndescription: '{ABOUT}'\n---\n\n", is_typed=True,
    ),
    "codex": AgentClient(".codex/config.toml", "mcp_servers", "AGENTS.md"),
    "cursor": AgentClient(
        ".cursor/mcp.json", "mcpServers", ".cursor/rules/kernel-evo.mdc",
        f"---\ndescription: '{ABOUT}'\nglobs:\nalwaysApply: false\n---\n\n", is_typed=True,
    ),
    "vscode": AgentClient(".vscode/mcp.json", "servers", "AGENTS.md", is_typed=True),
}  # fmt: skip


@dataclass(frozen=True)
class Change:
    """One file of a project, as it is and as it is to be; None: it is not there."""

    root: Path
    name: str
    before: str | None
    after: str | None

    def diff(self) -> str:
        """Return it as a unified diff; empty where nothing changes."""
        old, new = ((text or "").splitlines(keepends=True) for text in (self.before, self.after))
        first, second = (self.name if text is not None else "/dev/null" for text in (self.before, self.after))
        lines = unified_diff(old, new, first, second)
        return "".join(line if line.endswith("\n") else f"{line}\n" for line in lines)

    def apply(self) -> None:
        """Write or remove the file; folders of the project that become empty go with it. It raises UserError."""
        path = self.root / self.name
        if self.after is not None:
            write_exactly(path, self.after)
            return
        with writing(path):
            path.unlink(missing_ok=True)
            for folder in list(Path(self.name).parents)[:-1]:
                if (self.root / folder).is_dir() and not any((self.root / folder).iterdir()):
                    (self.root / folder).rmdir()


def server_command(run: str = "") -> list[str]:
    """Return the command that serves MCP: of a run, or of all runs."""
    installed = Path(sys.executable).with_name("evo")
    words = [str(installed)] if installed.exists() else [sys.executable, "-m", "evo.cli"]
    return [*words, "mcp", *([run] if run else [])]


def installed(root: Path, name: str, command: list[str]) -> list[Change]:
    """Return the changes that put a client's kit into the project in `root`. It raises UserError."""
    client = CLIENTS[name]
    entry: dict[str, Any] = {"type": "stdio"} if client.is_typed else {}
    entry |= {"command": command[0], "args": command[1:]}
    config, page = read_exactly(root / client.config), read_exactly(root / client.page)
    bare = None if config is None else _without_server(config, client)
    served = _with_server(root / client.config, bare, client, entry)
    if client.head and page is not None and not page.startswith(client.head):
        raise UserError(f"{root / client.page}: it is there already, and of another origin")
    told = _with_page(page if page is None else _without_page(page, client), client)
    return [Change(root, client.config, config, served), Change(root, client.page, page, told)]


def removed(root: Path, name: str) -> list[Change]:
    """Return the changes that take a client's kit out of the project in `root`. It raises UserError.

    A page that another client reads too stays as long as that one has its server.
    """
    client = CLIENTS[name]
    config, page = read_exactly(root / client.config), read_exactly(root / client.page)
    others = (each for key, each in CLIENTS.items() if key != name and each.page == client.page)
    is_shared = any(SERVER in (read_exactly(root / other.config) or "") for other in others)
    return [
        Change(root, client.config, config, None if config is None else _without_server(config, client)),
        Change(root, client.page, page, page if page is None or is_shared else _without_page(page, client)),
    ]


def read_exactly(path: Path) -> str | None:
    """Return the text of a file with the ends of its lines; None where it is not there. It raises UserError."""
    try:
        with path.open(encoding="utf-8", newline="") as file:
            return file.read()
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: cannot be read: {error}") from None


def write_exactly(path: Path, text: str) -> None:
    """Write a text as a file at once, with the permissions that the file had. It raises UserError."""
    made = path.with_name(f".{path.name}.evo")
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            made.write_text(text, encoding="utf-8", newline="")
            if path.exists():
                shutil.copymode(path, made)
            made.replace(path)
        finally:
            made.unlink(missing_ok=True)


# --- servers --------------------------------------------------------------------------------------------------------


def _with_server(path: Path, text: str | None, client: AgentClient, entry: Mapping[str, Any]) -> str:
    if path.suffix == ".toml":
        made = _with_block(text, _toml(client, entry), "# ", "")
        try:
            tomllib.loads(made)
        except tomllib.TOMLDecodeError as error:
            there = "it has a server kernel-evo of another origin, or " if text and SERVER in text else ""
            raise UserError(f"{path}: {there}it is no TOML that can be added to: {error}") from None
        return made
    try:
        return _json_with(text, client.table, entry)
    except (ValueError, TypeError) as error:
        raise UserError(
            f"{path}: it is no plain JSON, of which comments are no part ({error}); add to {client.table!r} by hand: "
            f"{json.dumps({SERVER: entry})}"
        ) from None


def _without_server(text: str, client: AgentClient) -> str | None:
    if client.config.endswith(".toml"):
        return _without_block(text, "# ", "")
    try:
        entry = json.loads(text)[client.table][SERVER]
    except (ValueError, TypeError, KeyError):
        return text
    table, server = (client.table,), (client.table, SERVER)
    candidates = (None, _json_cut(text, table), _json_cut(text, server))
    exact = (each for each in candidates if _json_with(each, client.table, entry) == text)
    return next(exact, candidates[-1])


def _json_with(text: str | None, table: str, entry: Mapping[str, Any]) -> str:
    """The configuration with the server. It raises ValueError and TypeError for what is none."""
    if text is None:
        return json.dumps({table: {SERVER: entry}}, indent=2) + "\n"
    top = json.loads(text)
    if not isinstance(top, dict) or not isinstance(top.get(table, {}), dict):
        raise TypeError(f"an object with an object {table!r} was expected")
    path = (table,) if table in top else ()
    # Each case is written in its own way, so that the text says what was there before.
    member = f'"{SERVER}": {json.dumps(entry)}' if path else f'"{table}": {{ "{SERVER}": {json.dumps(entry)} }}'
    begin, members = _members(text, path)
    margin = f"\n{'  ' * (len(path) + 1)}"
    return text[:begin] + (f"{margin}{member}," if members else member) + text[begin:]


def _json_cut(text: str, path: tuple[str, ...]) -> str:
    """The text without the member at the path, and without a comma that was between it and another."""
    begin, members = _members(text, path[:-1])
    at = next(number for number, (name, _, _) in enumerate(members) if name == path[-1])
    end = members[at][2]
    if len(members) == 1:
        return text[:begin] + text[end:]
    if at == 0:
        return text[:begin] + text[text.index(",", end) + 1 :]
    return text[: members[at - 1][2]] + text[end:]


def _members(text: str, path: tuple[str, ...]) -> tuple[int, list[tuple[str, int, int]]]:
    """The place behind the brace of the object at the path, and its members: name, begin and end of the value."""
    decoder, at = json.JSONDecoder(), _past(text, 0)
    begin = at + 1
    found: list[tuple[str, int, int]] = []
    at = _past(text, begin)
    while text[at] != "}":
        name, at = decoder.raw_decode(text, at)
        value = _past(text, _past(text, at) + 1)
        _, at = decoder.raw_decode(text, value)
        found.append((name, value, at))
        at = _past(text, at)
        at = _past(text, at + 1) if text[at] == "," else at
    if not path:
        return begin, found
    offset = next(value for name, value, _ in found if name == path[0])
    inner, members = _members(text[offset:], path[1:])
    return offset + inner, [(name, offset + value, offset + end) for name, value, end in members]


def _past(text: str, at: int) -> int:
    """The place of the next character that is no white space."""
    while text[at] in " \t\r\n":
        at += 1
    return at


def _toml(client: AgentClient, entry: Mapping[str, Any]) -> str:
    # Strings of JSON are strings of TOML, but for a character that no command has.
    lines = (f"{name} = {json.dumps(value, ensure_ascii=False)}" for name, value in entry.items())
    # Its own limits, 30 s or less for the start and 60 s for a tool, are short beside a search on all cores.
    limits = ("startup_timeout_sec = 120", "tool_timeout_sec = 660")
    return "\n".join((f"[{client.table}.{SERVER}]", *lines, *limits))


# --- pages ----------------------------------------------------------------------------------------------------------


def _with_page(text: str | None, client: AgentClient) -> str:
    page = SKILL.read_text(encoding="utf-8")
    return f"{client.head}{page}" if client.head else _with_block(text, page.strip(), "<!-- ", " -->")


def _without_page(text: str, client: AgentClient) -> str | None:
    if client.head:
        return None if text.startswith(client.head) else text
    return _without_block(text, "<!-- ", " -->")


def _with_block(text: str | None, inner: str, opens: str, closes: str) -> str:
    """The text with a marked block at its end."""
    block = f"{opens}{BEGIN}{closes}\n{inner}\n{opens}{END}{closes}\n"
    if text is None:
        return block
    return f"{text}\n{block}"


def _without_block(text: str, opens: str, closes: str) -> str | None:
    first, last = f"{opens}{BEGIN}{closes}\n", f"\n{opens}{END}{closes}\n"
    begin, end = text.find(first), text.find(last)
    if begin < 0 or end < begin:
        return text
    rest = text[end + len(last) :]
    return text[: begin - 1] + rest if begin else rest or None
