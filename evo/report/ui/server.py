"""The server of `evo ui`: a run's report, its state, and the pages of `evo.report.ui.pages`. It has no files.

All who can reach the address can read the run: this machine alone, unless a user says otherwise. Pages of other
sites cannot: the name by which a browser asks must be one of ours (DNS rebinding), nothing may be framed, and no answer
is for another origin.
"""

from __future__ import annotations

import ipaddress
import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from multiprocessing.connection import Connection
from pathlib import Path
from socketserver import TCPServer
from typing import Any

from evo.api import Run
from evo.folders import DATABASE
from evo.report.document import Document
from evo.report.health import Health, health
from evo.report.render import html, policy
from evo.report.run import report_page
from evo.report.ui.pages import SITE, Missing, PageAddress, page
from evo.store import has_writer
from evo.workers.local import fresh_python
from operators.errors import UserError

ENTRY = f"__file__ = {__file__!r}; from evo.report.ui.server import main; main()"
"""Without `__file__` DuckDB takes the process for one that a person types to, and draws how far its queries are."""
NICENESS = 10


@dataclass(frozen=True)
class Made:
    """Material read of a run."""

    health: Health | None
    """None where it cannot be read."""
    state: str = ""
    """The name of the state that the page shows; empty where none was wanted, or made."""
    page: bytes = b""
    cpu_s: float = 0.0
    """Processor time that it took."""
    error: str = ""
    """Why there is none, in a line."""
    is_missing: bool = False
    """Whether that is because there is nothing of that name."""


class Maker:
    """The process, started when it is first asked and again when it was lost. It ends with us, however we end."""

    def __init__(self, folder: Path, runs: Path) -> None:
        """`folder` is the run's, `runs` that of all runs."""
        self._folder, self._runs = folder, runs
        self._process: subprocess.Popen[bytes] | None = None
        self._connection: Connection | None = None
        self._asking = threading.Lock()

    def ask(self, wish: str) -> Made:
        """The answer to `page`, `health` or the path of another page; any thread may ask, one at a time is answered."""
        with self._asking:
            try:
                connection = self._connection or self._start()
                connection.send(wish)
                made: Made = connection.recv()
                return made
            except (EOFError, OSError):
                self._connection = None
                code = self._process.wait() if self._process else None
                return Made(None, error=f"the process that reads the run ended with exit code {code}")

    def close(self) -> None:
        """End the process at once."""
        if self._process:
            self._process.kill()
            self._process.wait()

    def _start(self) -> Connection:
        self._process, self._connection = fresh_python(ENTRY, str(self._folder), str(self._runs), own_session=True)
        return self._connection


def main() -> None:
    """Answer until no browser asks any more."""
    os.nice(NICENESS)
    folder, runs = map(Path, sys.argv[2:4])
    with Connection(int(sys.argv[1])) as connection, suppress(EOFError, BrokenPipeError, ConnectionResetError):
        while True:
            connection.send(made(folder, runs, connection.recv()))


def made(folder: Path, runs: Path, wish: str) -> Made:
    """The material of the run in `folder` as of now."""
    try:
        if wish.startswith("/"):
            return Made(None, page=page(folder, runs, wish).encode("utf-8", errors="backslashreplace"))
        found = health(Run(folder))
        if wish == "health":
            return Made(found)
        state, before_s = str(time.time_ns()), time.process_time()
        report = report_page(folder, live=state, site=SITE).encode("utf-8", errors="backslashreplace")
        return Made(found, state, report, time.process_time() - before_s)
    except (UserError, OSError) as error:
        return Made(None, error=str(error), is_missing=isinstance(error, Missing))


SHARE = 0.2
"""Largest share of one core that pages of a run which goes on take: it is a search's machine."""
LEAST_PAUSE_S = 1.0
SNAPSHOT_S = 10.0
"""Age of a snapshot that readers may share: rows written this shortly before a page was begun may not be in it."""
HEALTH_S = 30.0
"""Seconds after which the health of a run in which nothing happens is asked anew."""


@dataclass(frozen=True)
class Trace:
    """Trace that tells from outside, at no cost to its writer, whether a run has changed."""

    files: tuple[tuple[int, int], ...]
    """The times at which the database and its log were written last, in nanoseconds since 1970, and their bytes."""
    is_running: bool

    @property
    def written_s(self) -> float:
        """When anything was last written, in seconds since 1970."""
        return max((written / 1e9 for written, _ in self.files), default=0.0)


@dataclass(frozen=True)
class Reading:
    """The last time that the run was read for a page, with or without success."""

    trace: Trace
    """The state of the run's files before that."""
    began_s: float
    """In seconds since 1970."""
    ended_s: float
    cpu_s: float = 0.0
    """Processor time that it took."""


def trace(folder: Path) -> Trace:
    """The state of the files of the run in `folder` now."""
    files = []
    for name in (DATABASE, f"{DATABASE}.wal"):
        try:
            found = (folder / name).stat()
        except OSError:
            continue
        files.append((found.st_mtime_ns, found.st_size))
    try:
        return Trace(tuple(files), has_writer(folder))
    except OSError:  # the folder is gone
        return Trace(tuple(files), False)


def due(now_s: float, found: Trace, last: Reading | None) -> bool:
    """Whether the run wants to be read for a new page; times in seconds since 1970.

    That is so where it changed, and of a run that goes on no more often than takes its share of the time.
    """
    if last is None:
        return True
    may_lack = found.is_running and found.written_s > last.began_s - SNAPSHOT_S
    if found == last.trace and not may_lack:
        return False
    pause_s = max(LEAST_PAUSE_S, last.cpu_s * (1 / SHARE - 1) if found.is_running else 0.0)
    return now_s - last.ended_s >= pause_s


class Watched:
    """A run, its newest page and its health. Any thread may ask; nothing is read while none does."""

    def __init__(
        self, folder: Path, reads: Maker, pages: Maker | None = None, *, clock: Callable[[], float] = time.time
    ) -> None:
        """`pages` makes those that are asked for one by one; `clock` tells seconds since 1970."""
        self.folder = folder
        self._reads, self._pages, self._clock = reads, pages or reads, clock
        self._lock = threading.Lock()
        self._busy: threading.Thread | None = None
        self._last: Reading | None = None
        self._asked_s = 0.0
        self._health: Made = Made(None)
        self._page: Made = Made(None)
        self._page_s = 0.0

    @property
    def page(self) -> bytes:
        """The newest one; empty where none is ready yet."""
        return self._page.page

    def first(self) -> Made:
        """The state of the run, before anything else is asked."""
        made = self._reads.ask("health")
        with self._lock:
            self._health, self._asked_s = made, self._clock()
        return made

    def look(self) -> dict[str, Any]:
        """The state of the run and the age of the newest page; this begins a newer one where it is due."""
        found, now_s = trace(self.folder), self._clock()
        with self._lock:
            if self._busy is None:
                if due(now_s, found, self._last):
                    self._begin("page", found, now_s)
                elif found.is_running and now_s - self._asked_s >= HEALTH_S:
                    self._begin("health", found, now_s)
            health = self._health.health
            return {
                "page": self._page.state or None,
                "age_s": max(now_s - self._page_s, 0.0) if self._page.page else None,
                "running": found.is_running, "making": self._busy is not None,
                "healthy": health is not None and health.is_healthy, "told": self._told(found),
            }  # fmt: skip

    def other(self, path: str) -> Made:
        """The page at a path, as of now."""
        return self._pages.ask(path)

    def wait(self) -> None:
        """Wait for what is being read, if anything is."""
        if busy := self._busy:
            busy.join()

    def _told(self, found: Trace) -> str:
        health = self._health.health
        if health is None:
            return f"the run cannot be read: {self._health.error}" if self._health.error else "the run is being read"
        if health.state == "running" and not found.is_running:
            return "ended"  # how, the page that is being made will say
        words = f"{health.state} ({health.reason})" if health.reason else health.state
        return "; ".join([words, *(f"{each.cause}: {each.told}" for each in health.findings)])

    def _begin(self, wish: str, found: Trace, now_s: float) -> None:
        self._busy = threading.Thread(target=self._read, args=(wish, found, now_s), daemon=True)
        self._busy.start()

    def _read(self, wish: str, found: Trace, began_s: float) -> None:
        made = self._reads.ask(wish)
        with self._lock:
            self._busy, self._health, self._asked_s = None, made, self._clock()
            if wish == "page":
                self._last = Reading(found, began_s, self._asked_s, made.cpu_s)
                if made.page:
                    self._page, self._page_s = made, began_s


PORT = 8080
HTML, JSON, TEXT = "text/html; charset=utf-8", "application/json", "text/plain; charset=utf-8"
IDLE_S = 30.0
"""Seconds without a byte after which a connection is given up."""


@dataclass(frozen=True)
class Response:
    """An answer, before it is sent."""

    status: HTTPStatus
    kind: str
    body: bytes
    is_live: bool = True
    """Whether its script asks for newer states."""


def respond(path: str, watched: Watched) -> Response:
    """The response for this path."""
    if path == "/":
        watched.look()
        return Response(HTTPStatus.OK, HTML, watched.page or waiting(watched))
    if path == "/state":
        return Response(HTTPStatus.OK, JSON, json.dumps(watched.look()).encode())
    try:
        PageAddress.parse(path)
    except Missing as error:
        return refusal(HTTPStatus.NOT_FOUND, str(error))
    made = watched.other(path)
    if made.page:
        return Response(HTTPStatus.OK, HTML, made.page, is_live=False)
    return refusal(HTTPStatus.NOT_FOUND if made.is_missing else HTTPStatus.SERVICE_UNAVAILABLE, made.error)


def refusal(status: HTTPStatus, why: str) -> Response:
    """An answer that says why there is no other one."""
    return Response(status, TEXT, f"{why}\n".encode())


def waiting(watched: Watched) -> bytes:
    """The page until the first one is made."""
    empty = Document(f"Run {watched.folder.name}", "Its report is being made; it appears here by itself.", [], [])
    return html(empty, live="", site=SITE).encode()


def headers(response: Response) -> dict[str, str]:
    """The headers of every answer."""
    own = policy(live=response.is_live, drawn=response.is_live, served=True)
    return {
        "Content-Type": response.kind,
        "Content-Length": str(len(response.body)),
        "Content-Security-Policy": f"{own}; frame-ancestors 'none'",
        "Cache-Control": "no-store",
        "X-Content-Type-Options": "nosniff",
        "X-Frame-Options": "DENY",
        "Referrer-Policy": "no-referrer",
        "Cross-Origin-Opener-Policy": "same-origin",
        "Cross-Origin-Resource-Policy": "same-origin",
    }


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches it."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def is_ours(named: str, host: str) -> bool:
    """Whether a request that asks `named` (its header Host) means a server at `host`.

    A site that has its own name lead here is told by that name. An address cannot be had lead anywhere; a port may be
    another one, which is forwarded.
    """
    try:
        name = _name(named)
    except ValueError:
        return False
    if is_loopback(name):
        return True
    if is_loopback(host):
        return False
    if name == host.lower() or name in _machine():
        return True
    try:
        return bool(ipaddress.ip_address(name))
    except ValueError:
        return False


def _name(named: str) -> str:
    """The name in `name`, `name:port` or `[address]:port`. It raises ValueError."""
    name, _, port = named.partition("]:") if named.startswith("[") else named.partition(":")
    if port and not (port.isascii() and port.isdigit()):
        raise ValueError(named)
    return name.strip("[]").lower()


@cache
def _machine() -> frozenset[str]:
    """The names of this machine."""
    return frozenset(name.lower() for name in (socket.gethostname(), socket.getfqdn()))


def server(watched: Watched, host: str, port: int | None) -> ThreadingHTTPServer:
    """A server that listens, at any free port for 0; None: at PORT, or where that is taken at any free one.

    It raises UserError.
    """
    try:
        family, *_, address = socket.getaddrinfo(host, port or 0, type=socket.SOCK_STREAM)[0]
    except (OSError, UnicodeError):
        raise UserError(f"--host {host}: no address of that name; say 127.0.0.1, or one of this machine's") from None

    class Server(ThreadingHTTPServer):
        address_family = family
        block_on_close = False  # readers that are not done do not keep us

        def server_bind(self) -> None:
            """Bind like any TCP server, without the look-up of the address's name in DNS, which may take seconds."""
            TCPServer.server_bind(self)

        def handle_error(self, request: Any, client_address: Any) -> None:
            """A reader that went away is no error."""

    handler = handler_of(lambda path: respond(path, watched), host)
    for number in (PORT, 0) if port is None else (port,):
        try:
            return Server((str(address[0]), number), handler)
        except (OSError, OverflowError) as error:
            problem = error
    raise UserError(
        f"--host {host} --port {port}: cannot listen there: {getattr(problem, 'strerror', None) or problem}; "
        "--port 0 takes any free port"
    )


def handler_of(answer: Callable[[str], Response], host: str) -> type[BaseHTTPRequestHandler]:
    """The handler of connections: it sends what `answer` makes of a path."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        timeout = IDLE_S

        def do_GET(self) -> None:
            """Answer."""
            named = self.headers.get_all("Host") or [""]
            if len(named) != 1 or not is_ours(named[0], host):
                self._send(refusal(HTTPStatus.MISDIRECTED_REQUEST, "this is no server of that name"))
            else:
                self._send(answer(self.path))

        do_HEAD = do_GET

        def refuse(self) -> None:
            """Refuse requests to change something."""
            self.close_connection = True  # its body is not read
            self._send(refusal(HTTPStatus.METHOD_NOT_ALLOWED, "only GET and HEAD"), Allow="GET, HEAD")

        do_POST = do_PUT = do_PATCH = do_DELETE = do_OPTIONS = do_TRACE = do_CONNECT = refuse

        def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
            """Answer what is no request, without a word of it."""
            self.close_connection = True
            self._send(refusal(HTTPStatus(code), HTTPStatus(code).phrase.lower()))

        def _send(self, response: Response, **more: str) -> None:
            self.send_response(response.status)
            for name, value in (headers(response) | more).items():
                self.send_header(name, value)
            if self.close_connection:
                self.send_header("Connection", "close")
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(response.body)

        def version_string(self) -> str:
            """The server's name, without the version of Python."""
            return "kernel-evo"

        def log_message(self, format: str, *args: Any) -> None:
            """Nothing is written for a request."""

    return Handler
