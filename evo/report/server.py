"""The server of `evo ui`: one page, and how the run is that it shows. There is nothing else to ask for.

Whoever can reach the address can read the run; that is this machine alone unless a user says otherwise. Pages of other
sites cannot: the name by which a browser asks must be one of ours (DNS rebinding), nothing may be framed, and no answer
is for another origin.
"""

from __future__ import annotations

import ipaddress
import json
import socket
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer
from typing import Any

from evo.report.document import Document
from evo.report.render import html, policy
from evo.report.watched import Watched
from operators.errors import UserError

PORT = 8080
HTML, JSON, TEXT = "text/html; charset=utf-8", "application/json", "text/plain; charset=utf-8"
IDLE_S = 30.0
"""A connection on which nothing comes for so long is given up."""


@dataclass(frozen=True)
class Response:
    """An answer, before it is sent."""

    status: HTTPStatus
    kind: str
    body: bytes


def respond(path: str, watched: Watched) -> Response:
    """What there is at this path."""
    if path == "/":
        watched.look()
        return Response(HTTPStatus.OK, HTML, watched.page or waiting(watched))
    if path == "/state":
        return Response(HTTPStatus.OK, JSON, json.dumps(watched.look()).encode())
    return refusal(HTTPStatus.NOT_FOUND, "there is nothing but / and /state")


def refusal(status: HTTPStatus, why: str) -> Response:
    """An answer that says why there is no other one."""
    return Response(status, TEXT, f"{why}\n".encode())


def waiting(watched: Watched) -> bytes:
    """The page until the first one is made."""
    empty = Document(f"Run {watched.folder.name}", "Its report is being made; it appears here by itself.", [], [])
    return html(empty, live="").encode()


def headers(response: Response) -> dict[str, str]:
    """Those of every answer."""
    return {
        "Content-Type": response.kind,
        "Content-Length": str(len(response.body)),
        "Content-Security-Policy": f"{policy(live=True)}; frame-ancestors 'none'",
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
    another one, which somebody forwards.
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
    """Of `name`, `name:port` or `[address]:port`. It raises ValueError."""
    name, _, port = named.partition("]:") if named.startswith("[") else named.partition(":")
    if port and not (port.isascii() and port.isdigit()):
        raise ValueError(named)
    return name.strip("[]").lower()


@cache
def _machine() -> frozenset[str]:
    """The names of this machine."""
    return frozenset(name.lower() for name in (socket.gethostname(), socket.getfqdn()))


def server(watched: Watched, host: str, port: int | None) -> ThreadingHTTPServer:
    """One that listens, at any free port for 0; None: at PORT, or where that is taken at any free one.

    It raises UserError.
    """
    try:
        family, *_, address = socket.getaddrinfo(host, port or 0, type=socket.SOCK_STREAM)[0]
    except (OSError, UnicodeError):
        raise UserError(f"--host {host}: no address of that name; say 127.0.0.1, or one of this machine's") from None

    class Server(ThreadingHTTPServer):
        address_family = family
        block_on_close = False  # whoever is still reading does not keep us

        def server_bind(self) -> None:
            """As any server of TCP: nobody here wants the name that DNS has for the address, seconds later perhaps."""
            TCPServer.server_bind(self)

        def handle_error(self, request: Any, client_address: Any) -> None:
            """A reader that went away is nobody's error."""

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
    """What handles connections: it sends what `answer` makes of a path."""

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
            """Refuse whatever wants to change something."""
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
            """Of us, no more than that."""
            return "kernel-evo"

        def log_message(self, format: str, *args: Any) -> None:
            """Nothing is written for a request."""

    return Handler
