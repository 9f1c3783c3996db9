"""Programs of this machine as language models: a prompt on standard input, an answer on standard output.

A program runs in a new folder, in a session of its own that is killed with it, with a bounded output and with few of
our environment's variables, and it dies with us. It keeps the rights of the account: it may use the network, and read
and write what the user may, as it needs its own settings and credentials.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fitness.sandbox.native import jailed
from mutators.base import CallStatus, Message
from mutators.llm.faults import NO_CREDIT, NO_LOGIN, CallFailed, Fault, one_line
from mutators.llm.settings import PROGRAM
from mutators.llm.tools import content_of
from mutators.llm.wire import MOST_BODY
from operators.errors import UserError

MOST_DOLLARS = 1e6
"""A call that is told to have cost more has told no price."""
LOOK_EVERY_S = 0.05
PASSED_ON = re.compile(
    r"HOME|USER|LOGNAME|PATH|SHELL|LANG|LANGUAGE|LC_\w+|TERM|TZ|XDG_\w+|(HTTPS?|ALL|NO)_PROXY|(https?|all|no)_proxy"
    r"|SSL_CERT_(FILE|DIR)|NODE_EXTRA_CA_CERTS|REQUESTS_CA_BUNDLE"
)
"""Variables of the environment that every program gets, beside those that begin with its own name."""
ASKED = "Answer the last message of this conversation with text alone. Use no tools, and write no files."
"""Words before a conversation: programs that are agents would work in their folder instead."""


@dataclass(frozen=True)
class Said:
    """Answer of a program, as far as its output tells of it."""

    text: str
    usage: Any = None
    """Tokens under the names of OpenAI's interface, and what else was told of them."""
    cost_usd: float | None = None
    """Dollars that it told; None: it told none."""
    status: CallStatus = CallStatus.ANSWERED
    error: str = ""
    """Reason why it is not whole; empty when it is."""


class NoAnswer(Exception):
    """The output of a program says that it has no answer; the text says why."""


@dataclass(frozen=True)
class Manner:
    """Use of a program: its arguments before those that the model's name has, and how its output is read."""

    arguments: tuple[str, ...] = ()
    read: Callable[[str], Said] | None = None
    """None: as that of any program."""
    variables: tuple[str, ...] = ()
    """Beginnings of further variables of the environment that it gets."""
    given: Mapping[str, str] = field(default_factory=dict)
    """Variables that it gets with these values, also in place of ours."""


async def ask(model: str, messages: Sequence[Message]) -> Said:
    """Ask the program that `model` names. It raises CallFailed.

    A caller that gives up cancels it, which ends the program with all that it began.
    """
    words = _command(model)
    if words is None:
        raise CallFailed(Fault(f"there is no program {model.removeprefix(PROGRAM)}", "setup", turned_away=True))
    name = Path(words[0]).name
    manner = MANNERS.get(name, Manner())
    with tempfile.TemporaryDirectory(prefix="kernel-evo-program-", ignore_cleanup_errors=True) as place:
        prompt, out, said, folder = (Path(place, each) for each in ("prompt", "output", "errors", "folder"))
        prompt.write_bytes(as_text(messages).encode(errors="replace"))
        folder.mkdir()
        with prompt.open("rb") as reads, out.open("wb") as writes, said.open("wb") as errors:
            try:
                process = subprocess.Popen(
                    jailed([words[0], *manner.arguments, *words[1:]]), stdin=reads, stdout=writes, stderr=errors,
                    cwd=folder, env=_environment(name, manner, str(folder)),
                )  # fmt: skip
            except OSError as error:
                fault = Fault(f"{name} cannot be started: {error.strerror}", "setup", turned_away=True)
                raise CallFailed(fault) from None
        await _ended(process, (out, said))
        texts = [file.read_text(encoding="utf-8", errors="replace") for file in (out, said)]
    return _understood(manner, name, process.returncode, *texts)


def check(model: str) -> None:
    """Raise UserError for a model whose program is not there."""
    if _command(model) is None:
        raise UserError(
            f"model {model}: no such program can be run here; write {PROGRAM}NAME for one in PATH, or {PROGRAM}PATH, "
            f"with arguments behind it as in a shell"
        )


def as_text(messages: Sequence[Message]) -> str:
    """The conversation as a program reads it."""
    parts = (f"--- {message['role']}\n{content_of(message)}" for message in messages)
    return "\n\n".join([ASKED, *parts, ""])


def _command(model: str) -> list[str] | None:
    """The program's path, which holds in another folder too, and its arguments; None: there is none to run."""
    try:
        words = shlex.split(model.removeprefix(PROGRAM))
    except ValueError:  # a quotation without end
        return None
    found = shutil.which(words[0]) if words else None
    return [str(Path(found).absolute()), *words[1:]] if found else None


def _environment(name: str, manner: Manner, folder: str) -> dict[str, str]:
    begins = (f"{re.sub('[^A-Z0-9]', '_', Path(name).stem.upper())}_", *manner.variables)
    kept = {k: value for k, value in os.environ.items() if PASSED_ON.fullmatch(k) or k.startswith(begins)}
    return {**kept, **manner.given, "TMPDIR": folder, "PWD": folder}


async def _ended(process: subprocess.Popen[bytes], files: Sequence[Path]) -> None:
    """Wait for a process that writes to these files; its session ends with it, also where it is given up.

    It raises CallFailed where they grow beyond the limit.
    """
    try:
        while process.poll() is None:
            if any(file.stat().st_size > MOST_BODY for file in files):
                break
            await asyncio.sleep(LOOK_EVERY_S)
    finally:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    if any(file.stat().st_size > MOST_BODY for file in files):
        raise CallFailed(Fault(f"the program wrote more than {MOST_BODY} bytes", "call", turned_away=False))


def _understood(manner: Manner, name: str, code: int, out: str, said: str) -> Said:
    """The answer in a program's output. It raises CallFailed."""
    told = ""
    try:
        answer = (manner.read or _plain)(out)
        if not code and (answer.text.strip() or answer.status is CallStatus.REFUSED):
            return answer
    except NoAnswer as error:
        told = str(error)
    except (ValueError, TypeError, AttributeError, RecursionError):
        told = "" if code else "its output is not in the form that it is asked for"
    last = told or next((line for line in reversed((said or out).splitlines()) if line.strip()), "nothing was said")
    text = one_line(RuntimeError(f"{name} {f'ended with {code}' if code else 'gave no answer'}: {last}"))
    if NO_LOGIN.search(text) or NO_CREDIT.search(text):
        raise CallFailed(Fault(text, "setup", turned_away=True))
    raise CallFailed(Fault(text, "transient", turned_away=False))


def _plain(text: str) -> Said:
    """The answer of any program: text, or an object of JSON as `evo tell` takes it."""
    try:
        told = json.loads(text)
    except ValueError:
        return Said(text)
    if not isinstance(told, dict):
        return Said(text)
    if isinstance(refused := told.get("refused"), str):
        return Said("", told.get("usage"), _dollars(told), CallStatus.REFUSED, one_line(RuntimeError(refused)))
    content = told.get("content")
    return Said(content, told.get("usage"), _dollars(told)) if isinstance(content, str) else Said(text)


def _claude(text: str) -> Said:
    """The answer of `claude -p --output-format json`: one object. It raises NoAnswer, and more for other output."""
    told = json.loads(text)
    if not isinstance(told.get("result"), str):
        raise NoAnswer(f"it ended with {told.get('subtype')}")
    if told.get("is_error"):
        raise NoAnswer(told["result"])
    usage = told.get("usage")
    if isinstance(usage, dict):  # tokens of the prompt that were in a cache, or are now, are counted apart
        asked = sum(usage[name] for name in CLAUDE_ASKED if type(usage.get(name)) is int)
        usage = {**usage, "prompt_tokens": asked, "completion_tokens": usage.get("output_tokens")}
    status = STATUSES.get(str(told.get("stop_reason")), CallStatus.ANSWERED)
    return Said(told["result"], usage, _dollars({"cost_usd": told.get("total_cost_usd")}), status)


def _codex(text: str) -> Said:
    """The answer of `codex exec --json`: an event a line, of which the last message counts. It raises NoAnswer."""
    answer: str | None = None
    usage, problem = None, "no message"
    for event in map(json.loads, filter(str.strip, text.splitlines())):
        item, kind = event.get("item"), event.get("type")
        if kind == "item.completed" and item.get("type") == "agent_message":
            answer = str(item.get("text"))
        elif kind == "turn.completed":
            usage = event.get("usage")
        elif kind in ("error", "turn.failed"):
            problem = str(event.get("message") or (event.get("error") or {}).get("message"))
    if answer is None:
        raise NoAnswer(problem)
    return Said(answer, usage)


def _dollars(told: Mapping[str, Any]) -> float | None:
    cost = told.get("cost_usd")
    is_one = isinstance(cost, int | float) and not isinstance(cost, bool) and 0 <= cost < MOST_DOLLARS
    return float(cost) if is_one and cost is not None else None


CLAUDE_ASKED = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
STATUSES = {"max_tokens": CallStatus.CUT, "refusal": CallStatus.REFUSED}
MANNERS: Mapping[str, Manner] = {
    "claude": Manner(
        ("-p", "--output-format", "json", "--tools", "", "--strict-mcp-config", "--no-session-persistence"),
        _claude,
        ("ANTHROPIC_", "AWS_", "GOOGLE_", "CLOUD_ML_"),
        # It would ask its model for a title of the session too, with the prompt once more.
        {"CLAUDE_CODE_DISABLE_TERMINAL_TITLE": "1"},
    ),
    "codex": Manner(
        ("exec", "--json", "--sandbox", "read-only", "--skip-git-repo-check", "--ephemeral"), _codex, ("OPENAI_",)
    ),
}
"""By the name of a program; any other is asked without arguments of ours."""
