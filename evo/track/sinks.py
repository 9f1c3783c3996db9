"""Sinks of a run's news: notices to an address or a command, a log of JSON lines, and trackers by name."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Protocol

from evo.api import Row
from evo.report.output import Scrubber, as_json
from evo.report.status import summary
from evo.report.terminal import many_line
from evo.track.news import News
from fitness.install import installing
from fitness.words import interval, ratio
from operators.errors import UserError, unknown
from operators.libraries import UNTRIED

Memory = dict[str, Any]
"""Facts that a sink keeps from look to look, and from session to session; JSON."""


class Unreached(Exception):
    """A sink did not take its news: these are kept, and offered again."""


class NewsSink(Protocol):
    """Anything that takes news. It may take as long as it likes, and may be given the same news twice."""

    name: str
    """A name that is the same in every session."""
    period_s: float
    """Seconds between two looks."""

    def take(self, news: News, memory: Memory) -> None:
        """Send the news on. It raises Unreached."""
        ...


@contextmanager
def reaching() -> Iterator[None]:
    """Any fault of a client's library means that its tracker was not reached."""
    try:
        yield
    except Unreached:
        raise
    except Exception as error:
        said = " ".join(str(error).split())[:MOST_SAID]
        raise Unreached(f"{type(error).__name__}: {said}" if said else type(error).__name__) from error


TRACKERS = {
    "mlflow": ("evo.track.trackers:Mlflow", "mlflow"),
    "wandb": ("evo.track.trackers:Wandb", "wandb"),
    "trackio": ("evo.track.trackers:Trackio", "trackio"),
    "otel": ("evo.track.trackers:Otel", "opentelemetry.exporter.otlp.proto.http"),
}
"""By name the class, and the package that its extra brings."""
MOST_SAID = 160
"""Letters of a client's own words on a fault."""
LOGS = ("json",)
LONGEST_S = 30.0
"""Seconds that a notice's address or command may take."""
TRIES = 3
"""Deliveries of a notice that are tried; afterwards it is dropped: it is of its moment."""
MOST_LATE_S = 900.0
"""Seconds after which an event is too old for a notice."""
STALLS, FAILURES = ("stalled", "restart"), ("failed", "task_failed", "model_out")
"""Kinds of events that notices tell."""


def sinks(trackers: Sequence[str], notify: Sequence[str], log: str) -> list[NewsSink]:
    """The sinks of these names. It raises UserError for one that there is not, or whose package is not installed."""
    found: list[NewsSink] = []
    for name in dict.fromkeys(trackers):
        if name not in TRACKERS:
            raise UserError(unknown("tracker", name, TRACKERS))
        place, needed = TRACKERS[name]
        if not _is_there(needed):
            raise UserError(f"tracker {name} needs the package {needed}: {installing(name)}")
        module, _, kind = place.partition(":")
        found.append(getattr(import_module(module), kind)())
    if log and log not in LOGS:
        raise UserError(f"--log {unknown('log', log, LOGS)}")
    for target in notify:
        _check_notified(target)
    return [*found, *map(Notify, dict.fromkeys(notify)), *([JsonLog()] if log else [])]


def _is_there(package: str) -> bool:
    with suppress(ModuleNotFoundError):  # of a package that it is in
        return find_spec(package) is not None
    return False


@dataclass(frozen=True)
class Notice:
    """One thing that a person should know at once."""

    event: str
    """best, stall, failure or end."""
    run: str
    task: str
    text: str
    at: str


def notices(news: News) -> list[Notice]:
    """Everything in the news that deserves a notice, in its order."""
    now = datetime.now(UTC)
    found = [_noticed(news, "best", row, _best(row)) for row in news.bests]
    for row in news.rows["events"]:
        if (now - row["created_at"]).total_seconds() > MOST_LATE_S:
            continue
        said = json.loads(row["detail_json"])
        if row["kind"] in STALLS:
            what = "what is stuck was restarted" if row["kind"] == "restart" else "an alarm was given"
            found.append(_noticed(news, "stall", row, f"nothing moves any more; {what}"))
        elif row["kind"] in FAILURES:
            who = f"{row['task'] or said.get('model') or 'the search'} failed"
            found.append(_noticed(news, "failure", row, f"{who}: {said.get('reason') or said.get('error') or ''}"))
    if news.is_over:
        died = news.state == "died"
        why = f" ({news.reason})" if news.reason else ""
        said = f"{news.state}{why}; {many_line(summary(news.run))}"
        found.append(_noticed(news, "failure" if died else "end", {"task": None, "created_at": now}, said))
    return found


def _noticed(news: News, event: str, row: Row, text: str) -> Notice:
    said = f"{news.id}: {row['task']}: {text}" if row["task"] else f"{news.id}: {text}"
    return Notice(event, news.id, row["task"] or "", Scrubber().secrets(said), row["created_at"].isoformat())


def _best(row: Row) -> str:
    untried = f" ({UNTRIED})" * bool(row["untried"])
    beside = f", {ratio(row['against_library'])} of the library{untried}" if row["against_library"] else ""
    bounds = interval(row["speedup_low"], row["speedup_high"])
    return f"{ratio(row['speedup'])} of the naive kernel (95 %: {bounds}), confirmed{beside}"


def _check_notified(target: str) -> None:
    """Raise UserError for an address that nothing can be posted to, and for a command that the shell does not know."""
    scheme, _, _ = target.partition("://")
    if re.fullmatch("[A-Za-z][A-Za-z0-9+.-]*", scheme) and scheme != target and scheme not in ("http", "https"):
        raise UserError(f"--notify {target}: notices go to an address of http or https, or to a command")
    first = target.split(maxsplit=1)[0] if target.strip() else ""
    plain = re.fullmatch("[A-Za-z0-9_./-]*", first) is not None  # any other word is the shell's own affair
    if plain and subprocess.run(["sh", "-c", 'command -v -- "$0"', first], capture_output=True).returncode:
        raise UserError(f"--notify {target}: no such command; write one that sh runs, or an address of http or https")


class Notify:
    """Notices to an http address, as a POST of JSON, or to a command of the shell, on its standard input."""

    period_s = 5.0

    def __init__(self, target: str, say: Callable[[str], None] | None = None) -> None:
        self._target = target
        self._say = say or (lambda said: print(f"evo: {said}", file=sys.stderr, flush=True))
        # An address may hold a secret: it is in no file's name.
        self.name = f"notify-{hashlib.sha256(target.encode()).hexdigest()[:8]}"

    def take(self, news: News, memory: Memory) -> None:
        """See `NewsSink`; what cannot be delivered is said, and dropped."""
        send = _post if self._target.startswith(("http://", "https://")) else _command
        for notice in notices(news):
            for left in reversed(range(TRIES)):
                try:
                    send(self._target, notice)
                    break
                except (OSError, ValueError, subprocess.SubprocessError) as error:
                    if not left:
                        self._say(f"--notify: a notice ({notice.event}) was not delivered: {_fault(error)}")


def _fault(error: Exception) -> str:
    """The fault in words that hold no address and no command."""
    if isinstance(error, subprocess.CalledProcessError):
        return f"the command ended with {error.returncode}"
    if isinstance(error, subprocess.TimeoutExpired):
        return f"the command took longer than {LONGEST_S:.0f} s"
    return str(getattr(error, "reason", "") or getattr(error, "strerror", "") or type(error).__name__)


def _post(address: str, notice: Notice) -> None:
    # `text` is the field that chats show.
    request = urllib.request.Request(
        address, json.dumps(asdict(notice)).encode(), {"Content-Type": "application/json", "User-Agent": "kernel-evo"}
    )
    with urllib.request.urlopen(request, timeout=LONGEST_S) as answer:
        answer.read(1 << 16)


def _command(command: str, notice: Notice) -> None:
    told = {f"EVO_{name.upper()}": str(value) for name, value in asdict(notice).items()}
    subprocess.run(
        command, shell=True, check=True, timeout=LONGEST_S, env={**os.environ, **told}, text=True,
        input=json.dumps(asdict(notice)), stdout=subprocess.DEVNULL,
    )  # fmt: skip


LINES = {"requests": "request", "calls": "call", "verdicts": "verdict"}
"""By stream, the name of the event in its lines; those of `events` have their own."""


class JsonLog:
    """A line of JSON on standard output for each event, verdict, call and finished request."""

    name = "log-json"
    period_s = 1.0

    def __init__(self) -> None:
        self._out = sys.stdout  # that of now: clients of trackers talk there, too, unless it is another one by then
        self._scrub = Scrubber().secrets

    def take(self, news: News, memory: Memory) -> None:
        """See `NewsSink`. It raises Unreached where nothing takes its lines."""
        found = [(row, name) for stream, name in LINES.items() for row in news.rows[stream]]
        found += [(row, "best") for row in news.bests]
        for row in news.rows["events"]:
            kept = {"task": row["task"], "created_at": row["created_at"], "detail": json.loads(row["detail_json"])}
            found.append((kept, row["kind"]))
        for row, name in sorted(found, key=lambda each: each[0]["created_at"]):
            self._print(news, name, row)
        if news.is_over:
            tasks = [asdict(task) for task in summary(news.run)]
            told = {"state": news.state, "reason": news.reason, "tasks": tasks}
            self._print(news, "end", {"created_at": datetime.now(UTC), **told})

    def _print(self, news: News, name: str, row: Row) -> None:
        rest = {key: value for key, value in row.items() if key not in ("place", "created_at")}
        line = {"at": row["created_at"].astimezone(UTC).isoformat(), "event": name, "run": news.id, **rest}
        try:
            print(self._scrub(as_json(line, indent=None)), file=self._out, flush=True)
        except OSError as error:  # its reader is gone, or the disk is full
            raise Unreached(error.strerror or type(error).__name__) from error
