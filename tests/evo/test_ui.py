"""`evo ui`: a run's report that keeps up with the search, to no other reader; its other pages: `test_ui_pages`."""

from __future__ import annotations

import http.client
import json
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from evo.report import render
from evo.report.health import Health, HealthFinding
from evo.report.ui import server as watching
from evo.report.ui.server import Made, Maker, Reading, Trace, Watched, due, is_ours, server
from evo.store import Store
from tests.evo.browser import CHROMIUM, Tab, tab
from tests.evo.test_cli import evo
from tests.store.rows import START_S, TASK, event
from tests.store.story import stored, story, tables
from tests.structure import ROOT

WELL = Health("running", "", 1.0, ())
Answer = tuple[int, dict[str, str], bytes]


class Scripted:
    """Reads as it is told to, when it is let."""

    def __init__(self) -> None:
        self.made = Made(WELL, "1", b"page", cpu_s=2.0)
        self.wishes: list[str] = []
        self.gate = threading.Event()
        self.gate.set()

    def ask(self, wish: str) -> Made:
        self.wishes.append(wish)
        assert self.gate.wait(30)
        return self.made


@dataclass
class Clock:
    """Seconds since 1970, as a test wants them."""

    now_s: float = 2_000_000_000.0

    def __call__(self) -> float:
        return self.now_s


@dataclass(frozen=True)
class Served:
    """A server with what it serves."""

    watched: Watched
    port: int

    def ask(self, path: str = "/", method: str = "GET", **headers: str) -> Answer:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            connection.request(method, path, headers=headers)
            found = connection.getresponse()
            return found.status, dict(found.getheaders()), found.read()
        finally:
            connection.close()

    def state(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.ask("/state")[2])
        return found


def served(watched: Watched) -> Iterator[Served]:
    with server(watched, "127.0.0.1", 0) as serving:
        thread = threading.Thread(target=serving.serve_forever, args=(0.01,))
        thread.start()
        yield Served(watched, serving.server_address[1])
        serving.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def still(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A run that has ended, read by a script."""
    folder = stored(tmp_path_factory.mktemp("still") / "run")
    for found in served(Watched(folder, Scripted())):
        found.watched.look()
        found.watched.wait()
        yield found


# --- what is served, and to whom -------------------------------------------------------------------------------------


def test_there_are_a_report_its_state_and_pages_and_no_files(still: Served) -> None:
    assert still.ask("/")[2] == b"page" and still.state()["page"] == "1"
    head = still.ask("/", "HEAD")
    assert head[0] == 200 and head[2] == b"" and head[1]["Content-Length"] == "4"
    for path in (
        "/evo.duckdb",
        "/../evo.duckdb",
        "/..%2f",
        "/.",
        "/state/",
        "/?x=1",
        "http://127.0.0.1/",
        "/%00",
        "/kernels/..",
        "/kernel/",
        "/kernel/a/b",
        "/kernels?nothing=1",
    ):
        code, told, said = still.ask(path)
        assert code == 404 and said.count(b"\n") == 1 and told["Content-Type"].startswith("text/plain"), path
    for path in ("/kernels?text=a", "/kernel/0123", "/queue", "/use", "/models", "/runs"):
        code, told, said = still.ask(path)
        assert (code, said) == (200, b"page") and "connect-src" not in told["Content-Security-Policy"], path
    for method in ("POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"):
        code, told, _ = still.ask("/", method)
        assert code == 405 and told["Allow"] == "GET, HEAD", method


@pytest.mark.parametrize("request_", ["/", "/state", "/kernels", "/no"])
def test_every_answer_is_for_this_page_alone_and_kept_nowhere(still: Served, request_: str) -> None:
    told = still.ask(request_)[1]
    assert told["Cache-Control"] == "no-store" and told["X-Content-Type-Options"] == "nosniff"
    assert told["X-Frame-Options"] == "DENY" and told["Cross-Origin-Resource-Policy"] == "same-origin"
    assert "default-src 'none'" in told["Content-Security-Policy"]
    assert "frame-ancestors 'none'" in told["Content-Security-Policy"] and "Access-Control-Allow-Origin" not in told
    assert told["Server"] == "kernel-evo"


def test_names_of_other_sites_that_lead_here_are_refused(still: Served) -> None:
    for name in ("evil.example", "127.0.0.1.evil.example", "localhost.evil.example:80", "", "192.0.2.1", "a@localhost"):
        assert still.ask("/", Host=name)[0] == 421, name
        assert b"page" not in still.ask("/", Host=name)[2]
    for name in ("localhost:9999", "LOCALHOST", "127.0.0.2", "[::1]:8080"):
        assert still.ask("/", Host=name)[0] == 200, name
    everywhere = "0.0.0.0"
    assert is_ours("192.0.2.1:8080", everywhere) and is_ours(socket.gethostname(), everywhere)
    assert is_ours("box.example", "box.example") and not is_ours("evil.example", everywhere)


def test_garbage_is_refused_in_a_word_and_the_next_reader_is_answered(still: Served) -> None:
    for sent in (
        b"\r\n\r\n",
        b"NONSENSE\r\n\r\n",
        b"GET / HTTP/1.1\r\n\r\n",
        b"FOO / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    ):
        with socket.create_connection(("127.0.0.1", still.port), timeout=30) as connection:
            connection.sendall(sent)
            connection.shutdown(socket.SHUT_WR)
            heard = b"".join(iter(lambda: connection.recv(1 << 16), b""))
            assert b"page" not in heard and b"200 OK" not in heard and b"NONSENSE" not in heard
    assert still.ask("/")[0] == 200


def test_no_name_of_the_pages_scripts_is_taken_twice() -> None:
    script = render._script(live=True)
    declared = re.findall(r"^(?:const|let|class|function) (\[[^\]]+\]|\w+)", script, re.MULTILINE)
    names = [name for each in declared for name in re.findall(r"\w+", each)]
    assert len(names) > 30 and len(names) == len(set(names)), "a script with a name twice does not run at all"


# --- when a run is read ----------------------------------------------------------------------------------------------


def test_a_run_is_read_again_where_it_changed_and_costs_its_share() -> None:
    def trace(written_s: float, size: int, *, running: bool = True) -> Trace:
        return Trace(((int(written_s * 1e9), size),), running)

    last = Reading(trace(900, 1), began_s=1000, ended_s=1003, cpu_s=2.0)
    assert due(0, trace(0, 0), None)
    assert not due(9999, trace(900, 1), last)  # nothing new
    assert not due(1010, trace(1005, 2), last)  # 2 s of 10 are its share
    assert due(1011, trace(1005, 2), last)
    assert due(1004, trace(1005, 2, running=False), last)  # the end waits for nothing
    assert not due(1003.5, trace(1005, 2, running=False), last)
    shared = Reading(trace(995, 1), began_s=1000, ended_s=1003, cpu_s=2.0)
    assert due(1011, trace(995, 1), shared)  # its snapshot may be older than what was written 5 s before


def test_one_at_a_time_reads_and_nobody_who_does_not_ask(tmp_path: Path) -> None:
    reads, clock = Scripted(), Clock()
    with Store(tmp_path / "run", create=True) as store:
        watched = Watched(tmp_path / "run", reads, clock=clock)
        assert reads.wishes == [] and watched.first().health == WELL
        reads.gate.clear()
        assert watched.look()["making"] and watched.look()["page"] is None
        clock.now_s += 999
        assert watched.look()["making"] and reads.wishes == ["health", "page"]
        reads.gate.set()
        watched.wait()
        state = watched.look()
        assert state["page"] == "1" and state["running"] and state["told"] == "running" and state["age_s"] == 999
        clock.now_s += watching.HEALTH_S  # nothing has changed: is all well?
        reads.made = Made(Health("running", "", 1.0, (HealthFinding("silent", "no sign of life for 9 min"),)))
        watched.look()
        watched.wait()
        state = watched.look()
        assert reads.wishes == ["health", "page", "health"] and watched.page == b"page"
        assert not state["healthy"] and state["told"] == "running; silent: no sign of life for 9 min"
        store.commit({"events": [event("finished")]}).result()
    reads.made = Made(None, error="it is damaged")
    assert watched.look()["making"] and not watched.look()["running"]
    watched.wait()
    assert watched.look()["told"] == "the run cannot be read: it is damaged" and watched.page == b"page"


# --- a search that goes on -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Live:
    """A run that is being written, and its server."""

    store: Store
    served: Served

    def next(self) -> str:
        """The name of the next state, once it is made."""
        before = end = self.served.watched.look()["page"]
        while end == before:
            self.served.watched.wait()
            end = self.served.watched.look()["page"]
        return str(end)

    def told(self, words: str) -> str:
        """The name of the state that tells of this and that nothing will follow, which a reading of our own may do."""
        watched = self.served.watched
        while words.encode() not in watched.page or watched.look()["making"]:
            watched.wait()
            watched.look()
        return str(watched.look()["page"])


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    folder = tmp_path_factory.mktemp("live") / "run"
    maker = Maker(folder, folder.parent)
    with pytest.MonkeyPatch.context() as patch, Store(folder, create=True) as store:
        patch.setattr(watching, "SHARE", 1.0)
        patch.setattr(watching, "LEAST_PAUSE_S", 0.0)
        patch.setattr(watching, "SNAPSHOT_S", 0.0)
        more = {"events": [event("session", at=time.time())], "asks": [ASK]}
        store.commit(tables(story(), config_json='{"strategy": "islands"}') | more).result()
        for found in served(Watched(folder, maker)):
            yield Live(store, found)
    maker.close()


@pytest.mark.slow
def test_files_of_the_current_folder_are_not_taken_for_modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "uuid.py").write_text("raise SystemExit('not ours')\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    maker = Maker(tmp_path / "none", tmp_path)
    assert "none" in maker.ask("health").error
    maker.close()


def better(number: int, kernel: str, parent: str, log_speedup: float, description: str = "") -> dict[str, Any]:
    """All that the store holds on one more kernel."""
    made = story()
    known = {name: len(rows) for name, rows in tables(made).items()}
    columns = {"description": description} if description else {}
    made.propose(number, "transform", parent, kernel, **columns)
    made.evaluate(number, kernel, "screen", "correct", log_speedup=log_speedup, cell="c")
    return {name: rows[known[name] :] for name, rows in tables(made).items() if name != "runs"}


ASK = {
    "seq": 0, "position": 0, "wanted": 1, "task": TASK, "number": 0, "request_id": f"{TASK}#0", "mutator": "ancestor",
    "request_json": "{}", "digest": "d", "created_at": START_S,
}  # fmt: skip
SEEN = """(() => {
  const fold = [...document.querySelectorAll("details.fold[id]")].find((each) => each.id.endsWith("-C2"));
  const table = [...document.querySelectorAll("table")].find((each) => each.caption.textContent === "Leaders");
  const about = document.activeElement.textContent;
  return {
    open: fold.open, source: fold.querySelector(".listing").open, top: Math.round(fold.getBoundingClientRect().top),
    focus: about.startsWith("C2"), sorted: table.querySelector("th[aria-sort]")?.textContent, told:
    document.querySelector(".live .told").textContent, leaders: table.tBodies[0].rows.length,
  };
})()"""
READ = """(() => {
  const fold = [...document.querySelectorAll("details.fold[id]")].find((each) => each.id.endsWith("-C2"));
  fold.open = fold.querySelector(".listing").open = true;
  const table = [...document.querySelectorAll("table")].find((each) => each.caption.textContent === "Leaders");
  const heading = [...table.querySelectorAll("th button")].find((each) => each.textContent === "estimate");
  heading.click();
  heading.click();
  fold.querySelector("summary").focus();
  fold.scrollIntoView();
})()"""


PICTURE = "document.querySelector('figure.picture')"
UNDRAWN = f"""(() => {{
  document.documentElement.style.overflowAnchor = "none"; // without help by the browser
  const [old, figure] = [{PICTURE}, {PICTURE}.cloneNode(true)];
  for (const part of figure.querySelectorAll(".controls, .canvas")) part.replaceChildren();
  figure.querySelector(".canvas").classList.remove("ready");
  old.replaceWith(figure);
  window.place = document.querySelector("section[aria-labelledby=progress]");
  place.scrollIntoView();
  Object.assign(window, {{ was: place.getBoundingClientRect().top, height: figure.offsetHeight }});
  pictures(document);
}})()"""
"""A fresh picture, as a newer state of the page brings one, right above what is read."""


@pytest.mark.slow
@pytest.mark.skipif(not CHROMIUM, reason="there is no Chromium here")
def test_in_a_browser_the_picture_keeps_up_and_keeps_its_filters(live: Live, tmp_path: Path) -> None:
    with tab(tmp_path) as page:
        page.show(1280, 700)
        page.go(f"http://127.0.0.1:{live.served.port}/")
        page.until(PICTURE)
        page.run(f"{PICTURE}.scrollIntoView()")
        page.until(f"{PICTURE}.view")
        page.run(f"(window.before = {PICTURE}).view.signal('across', 'elapsed').runAsync().then(() => 0)")
        live.store.commit(better(40, "P", "C2", 0.1, "a slower sibling")).result()
        _follow(page, live.told("a slower sibling"))
        has_it = f"{PICTURE}.view.data('individuals').some((each) => each.id === 'P')"
        page.until(f"{PICTURE} !== window.before && {PICTURE}.view && {has_it}")
        assert page.run(f"{PICTURE}.view.signal('across')") == "elapsed"


@pytest.mark.slow
@pytest.mark.skipif(not CHROMIUM, reason="there is no Chromium here")
def test_in_a_browser_a_picture_that_is_drawn_moves_nothing_below_it(live: Live, tmp_path: Path) -> None:
    with tab(tmp_path) as page:
        page.show(1280, 700)
        page.go(f"http://127.0.0.1:{live.served.port}/")
        page.until(PICTURE)
        page.run(f"{PICTURE}.scrollIntoView()")
        page.until(f"{PICTURE}.view")
        page.run(UNDRAWN)
        page.until(f"{PICTURE}.view")
        height, grew, moved = page.run(
            f"[window.height, {PICTURE}.offsetHeight - height, place.getBoundingClientRect().top - was]"
        )
        assert height > 300 and grew and abs(moved) <= 1, (height, grew, moved)


@pytest.mark.slow
@pytest.mark.skipif(not CHROMIUM, reason="there is no Chromium here")
def test_in_a_browser_the_page_keeps_up_and_the_reader_keeps_the_place(live: Live, tmp_path: Path) -> None:
    with tab(tmp_path) as page:
        page.show(1280, 700)
        page.go(f"http://127.0.0.1:{live.served.port}/")
        page.until("document.body.dataset.state && !document.querySelector('.live').hidden")
        page.run(READ)
        before = page.run(SEEN)
        assert before["open"] and before["source"] and before["focus"] and before["sorted"] == "estimate"
        assert before["told"] == "running" and page.run("scrollY") > 300

        live.store.commit(better(20, "H", "G", 1.3, "<img src=x onerror=document.title='pwned'>")).result()
        _follow(page, live.told("onerror"))
        after = page.run(SEEN)
        assert after == before | {"leaders": before["leaders"] + 1, "top": after["top"]}
        assert abs(after["top"] - before["top"]) <= 1
        assert page.run("document.title").startswith("Run ") and not page.run("document.images.length")

        # A line that does not come by C2 takes the lead: who reads about C2 goes on reading.
        page.run("document.querySelector('.live button').click()")
        live.store.commit(better(21, "Z", "K0", 2.5, "by another line")).result()
        newer = live.told("by another line")
        page.run("go()")
        held = "document.querySelector('.live .age').textContent.includes('held back')"
        page.until(held)
        assert page.run("document.body.dataset.state") != newer and page.run(SEEN) == after
        page.run("document.querySelector('.live button').click()")
        _follow(page, newer)
        last = page.run(SEEN)
        assert last["open"] and last["source"] and last["focus"] and last["leaders"] == after["leaders"] + 1
        assert abs(last["top"] - before["top"]) <= 1
        for width in (1280, 400):
            page.show(width, 700)
            assert page.run("document.documentElement.scrollWidth") <= width


def _follow(page: Tab, state: str) -> None:
    page.run("timer === -1 || go()")
    page.until(f"document.body.dataset.state >= {state!r} && timer !== -1")  # names are times


@pytest.mark.slow
def test_what_is_served_of_a_search_is_its_report_and_then_how_it_ended(live: Live) -> None:
    first = live.served.state()["page"] or live.next()
    live.served.watched.wait()
    assert b"Run run" in live.served.ask("/")[2]
    while live.served.state()["making"]:  # what our own reading wrote is looked at once more at most
        live.served.watched.wait()
    settled = live.served.state()
    assert settled["running"] and settled["told"] == "running" and settled["page"] >= first
    assert not live.served.state()["making"] and live.served.state()["page"] == settled["page"]
    live.store.commit({"events": [event("finished", '{"reason": "evaluations 24 of 24"}')]}).result()
    live.store.close()
    live.next()
    state = live.served.state()
    assert not state["running"] and state["told"].startswith("finished (evaluations 24 of 24)")
    assert b"The search goes on" not in live.served.ask("/")[2]
    shutil.rmtree(live.served.watched.folder)
    live.served.state()
    live.served.watched.wait()
    assert "cannot be read" in live.served.state()["told"] and b"Run run" in live.served.ask("/")[2]


# --- the command -----------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_it_serves_until_ctrl_c_and_leaves_nothing_behind(tmp_path: Path) -> None:
    folder = stored(tmp_path / "run")
    before = sorted(path.name for path in folder.iterdir())
    command = [sys.executable, "-m", "evo.cli", "ui", str(folder), "--port", "0"]
    process = subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    assert process.stdout
    line = process.stdout.readline()
    assert line.startswith(f"run {folder} is shown at http://127.0.0.1:") and line.endswith("(Ctrl-C ends it)\n")
    port = int(line.partition("127.0.0.1:")[2].partition("/")[0])
    with socket.create_connection(("127.0.0.1", port)):  # neither a reader that stays keeps it, nor what is being read
        process.send_signal(signal.SIGINT)
        out, told = process.communicate()  # the end of both streams: the process that reads has ended too
    assert (process.returncode, out, told) == (130, "", "")
    assert sorted(path.name for path in folder.iterdir()) == before


@pytest.mark.slow
def test_what_cannot_be_served_is_told_in_a_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = stored(tmp_path / "runs" / "one")
    (tmp_path / "runs" / "no").mkdir()
    (tmp_path / "runs" / "no" / "evo.duckdb").write_text("garbage")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        wrong = {
            ("absent",): "run absent does not exist in", ("no",): "cannot be read",
            ("one", "--port", port): "Address already in use; --port 0 takes any free port",
            ("one", "--host", "192.0.2.1"): "Cannot assign requested address",
        }  # fmt: skip
        for arguments, told in wrong.items():
            code, out, said = evo(monkeypatch, capsys, "ui", *arguments, "--runs", str(folder.parent))
            assert code == 2 and out == "" and said.count("\n") == 1 and told in said, (arguments, said)
