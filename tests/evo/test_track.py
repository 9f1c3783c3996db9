"""Trackers, notices and the log of JSON lines: what they are told of a run; one that is down costs nothing."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from evo import rows
from evo.api import Run
from evo.report.output import Scrubber
from evo.report.run import report_page
from evo.store import Store
from evo.track.follower import follow, followed, track
from evo.track.news import News, artifacts
from evo.track.sinks import JsonLog, Memory, Notify, Unreached, sinks
from evo.track.trackers import Mlflow, Otel, Trackio, Wandb
from operators.errors import UserError
from tests.choosing import some_slow
from tests.store.rows import TASK
from tests.store.story import stored, story


class Told:
    """A sink that keeps what it is told, after so many times in which it is down."""

    name = "told"
    period_s = 0.01

    def __init__(self, faults: int = 0) -> None:
        self.faults = faults
        self.news: list[News] = []

    def take(self, news: News, memory: Memory) -> None:
        if self.faults:
            self.faults -= 1
            raise Unreached("connection refused")
        memory["looks"] = memory.get("looks", 0) + 1
        self.news.append(news)

    def rows(self, stream: str) -> list[dict[str, Any]]:
        return [row for news in self.news for row in news.rows[stream]]


def add(folder: Path, *events: tuple[str, dict[str, Any]], at: float | None = None) -> Path:
    with Store(folder, create=False) as store:
        for kind, detail in events:
            store.commit(rows.event_rows(kind, detail, at=at or time.time())).result()
    return folder


def told_run(folder: Path) -> Path:
    """A run whose best kernel is confirmed; no session of it has a beginning or an end yet."""
    return stored(folder, story().evaluate(None, "G", "confirmed", "correct", log_speedup=1.1))


def ended(folder: Path) -> Path:
    return add(told_run(folder), ("session", {"tasks": [TASK]}), ("finished", {"reason": "budget used up"}))


OVER = threading.Event()
OVER.set()


def silent(said: str) -> None:
    pass


def test_a_sink_is_told_everything_once_and_only_the_rest_after_a_resume(tmp_path: Path) -> None:
    folder, first = ended(tmp_path / "run"), Told()
    assert follow(folder, first, OVER, silent)
    assert len({row["request_id"] for row in first.rows("requests")}) == len(first.rows("requests")) > 10
    assert [row["model"] for row in first.rows("calls")] == ["big", "big"]
    last = [point for news in first.news for point in news.points][-1]
    (best,) = Run(folder).sql("select exp(stands_at) as s from best").to_pylist()
    figures = {name: value for news in first.news for p in news.points for name, value in p.figures.items()}
    assert figures["best_speedup"] == pytest.approx(best["s"]) and last.task == TASK
    assert first.news[-1].is_over and first.news[-1].state == "finished"

    again = Told()
    add(folder, ("session", {"tasks": [TASK]}), ("stopped", {}))
    assert follow(folder, again, OVER, silent)
    assert [row["kind"] for row in again.rows("events")] == ["session", "stopped"]
    assert not again.rows("requests") and not again.rows("calls") and not again.news[0].bests
    assert json.loads((folder / "track-told.json").read_text())["memory"] == {"looks": 2}


@pytest.mark.slow
def test_no_sink_is_told_secrets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_API_KEY", "only-here-1234")
    key, config = f"sk-{'x' * 24}", json.dumps({"endpoint": "https://me:hidden-word@host/v1"})
    folder = stored(tmp_path / "run", story().call(3, "big", error=f"no such key: {key}"), config_json=config)
    add(folder, ("session", {"tasks": [TASK]}), ("failed", {"error": "only-here-1234 is refused"}))
    sink = Told()
    assert follow(folder, sink, OVER, silent)
    (news,) = sink.news
    said = json.dumps([news.rows, news.settings, news.reason, artifacts(news)], default=str)
    assert "no such key: [secret]" in said and "[secret] is refused" in said and "https://[secret]@host" in said
    assert key not in said and "hidden-word" not in said and "only-here" not in said
    page = report_page(ended(tmp_path / "plain"))
    assert Scrubber().secrets(page) == page, "nothing else is changed"


def test_a_sink_that_was_down_gets_all_of_it_and_one_line_says_so(tmp_path: Path) -> None:
    folder, sink, said = ended(tmp_path / "run"), Told(faults=1), []
    assert follow(folder, sink, OVER, said.append)
    assert len(sink.rows("calls")) == 2
    assert said == ["told is not reached: connection refused"]


def test_a_store_without_a_run_yet_ends_no_thread(tmp_path: Path) -> None:
    folder, said = tmp_path / "run", []
    Store(folder, create=True).close()
    assert not follow(folder, Told(), OVER, said.append)
    assert len(said) == 1 and "it has not begun yet" in said[0]


def test_a_tracker_that_is_down_is_said_once_with_the_command_for_what_it_misses(tmp_path: Path) -> None:
    class Down(Told):
        name = "otel"

    folder, said = ended(tmp_path / "run"), []
    assert track(folder, [Down(faults=10**6)], beside=False, say=said.append) == ["otel"]
    assert said == [f"otel is not reached: connection refused; what it misses is kept: evo track {folder} --to otel"]


def test_an_outage_while_the_run_goes_on_says_that_it_does(tmp_path: Path) -> None:
    folder, over, said = ended(tmp_path / "run"), threading.Event(), []

    def say(line: str) -> None:
        said.append(line)
        over.set()

    assert follow(folder, Told(faults=1), over, say)
    assert said == ["told is not reached: connection refused; the run goes on"]


def test_what_a_dead_tracker_missed_is_sent_later(tmp_path: Path) -> None:
    folder = ended(tmp_path / "run")
    assert track(folder, [Told(faults=10**6)], beside=False, say=silent) == ["told"]
    sink = Told()
    assert track(folder, [sink], beside=False, say=silent) == []
    assert len(sink.rows("calls")) == 2


def test_a_tracker_that_hangs_is_left_behind_and_keeps_nothing_from_others(tmp_path: Path) -> None:
    folder, release = ended(tmp_path / "run"), threading.Event()

    class Hanging(Told):
        name = "hanging"

        def take(self, news: News, memory: Memory) -> None:
            release.wait()
            super().take(news, memory)

    class Releasing(Told):
        def take(self, news: News, memory: Memory) -> None:
            super().take(news, memory)
            if news.is_over:
                release.set()

    assert track(folder, [Hanging()], beside=False, say=silent, most_s=0.1) == ["hanging"]
    sink = Releasing()
    assert track(folder, [Hanging(), sink], beside=False, say=silent) == []
    assert sink.news[-1].is_over
    for thread in threading.enumerate():
        if thread.name == "hanging":
            thread.join()


@contextmanager
def server(answer_s: float = 0.0) -> Iterator[tuple[str, list[tuple[str, bytes]]]]:
    """An address, and what was posted to it."""
    posted: list[tuple[str, bytes]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            posted.append((self.path, self.rfile.read(int(self.headers["Content-Length"]))))
            time.sleep(answer_s)
            self.send_response(200)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            pass

    serving = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=serving.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{serving.server_port}", posted
    finally:
        serving.shutdown()
        serving.server_close()
        thread.join()


def test_notices_go_to_an_address_and_to_a_command(tmp_path: Path) -> None:
    folder, out = told_run(tmp_path / "run"), tmp_path / "notices"
    add(folder, ("session", {"tasks": [TASK]}), ("stalled", {"still_s": 900}), ("failed", {"reason": "disk is gone"}))
    with server() as (address, posted):
        found = [Notify(f"{address}/secret"), Notify(f'cat >> {out}; echo " $EVO_EVENT" >> {out}')]
        assert track(folder, found, beside=False, say=silent) == []
    told = [json.loads(body) for _, body in posted]
    assert [each["event"] for each in told] == ["best", "stall", "failure", "end"]
    assert told[0]["task"] == TASK and "confirmed" in told[0]["text"] and "x" in told[0]["text"]
    assert "disk is gone" in told[2]["text"] and told[3]["text"].startswith("r: failed (disk is gone)")
    assert [line.rpartition(" ")[2] for line in out.read_text().splitlines()] == ["best", "stall", "failure", "end"]
    assert not [path for path in folder.iterdir() if "secret" in path.name]


def test_an_old_stall_is_no_notice_and_a_command_that_fails_is_said_without_its_words(tmp_path: Path) -> None:
    folder, said = told_run(tmp_path / "run"), []
    add(folder, ("session", {}), ("stalled", {}), ("finished", {"reason": "done"}), at=time.time() - 3600)
    assert follow(folder, Notify("token=geheim; false", said.append), OVER, silent)
    assert said == [
        f"--notify: a notice ({event}) was not delivered: the command ended with 1" for event in ("best", "end")
    ]


def test_the_log_is_a_line_of_json_for_each_event(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert follow(ended(tmp_path / "run"), JsonLog(), OVER, silent)
    told = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert {each["event"] for each in told} == {"session", "request", "verdict", "call", "best", "finished", "end"}
    assert all(each["run"] == "r" and each["at"].endswith("+00:00") for each in told)
    assert [each["status"] for each in told if each["event"] == "verdict" and each["kernel_id"] == "W"] == ["wrong"]
    assert told[-1]["state"] == "finished" and told[-1]["tasks"][0]["task"] == TASK


def test_a_log_that_nobody_reads_is_an_outage_and_no_traceback(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    said: list[str] = []
    with os.fdopen(writing, "w") as nobody, monkeypatch.context() as patched:
        patched.setattr(sys, "stdout", nobody)
        assert not follow(ended(tmp_path / "run"), JsonLog(), OVER, said.append)
        with suppress(BrokenPipeError):  # what was not written is still held
            nobody.close()
    assert said == ["log-json is not reached: Broken pipe"]


def test_what_is_no_tracker_and_what_is_not_installed_is_said_before_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match=r"^unknown tracker `mlfow`; did you mean `mlflow`"):
        sinks(["mlfow"], [], "")
    with pytest.raises(UserError, match="--log unknown log `xml`"):
        sinks([], [], "xml")
    monkeypatch.setattr("evo.track.sinks.find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"^tracker wandb needs the package wandb: .*\[wandb\]"):
        sinks(["wandb"], [], "")


# --- clients ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", some_slow([Wandb, Trackio], [Wandb]))
def test_figures_go_to_clients_that_log_by_step(kind: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Any] = []
    begun = SimpleNamespace(
        log=lambda figures, step: calls.append((step, figures)),
        log_artifact=calls.append,
        finish=lambda: calls.append("finish"),
    )
    module = ModuleType(kind.name)
    files: dict[str, str] = {}

    class Artifact:
        def __init__(self, name: str, type: str) -> None: ...

        def add_dir(self, place: str) -> None:
            texts = (path for path in Path(place).rglob("*") if path.is_file())
            files.update({str(path.relative_to(place)): path.read_text() for path in texts})

    vars(module).update(init=lambda **words: calls.append(words) or begun, Artifact=Artifact)
    monkeypatch.setitem(sys.modules, kind.name, module)
    folder, told = ended(tmp_path / "run"), Told()
    assert follow(folder, kind(), OVER, silent) and follow(folder, told, OVER, silent)
    steps = [call[0] for call in calls if isinstance(call, tuple)]
    assert steps == sorted(steps) and len(steps) > 10 and calls[-1] == "finish"
    assert calls[0]["name"] == "r" and calls[0]["config"]["seed"] == 7 and calls[0]["resume"] == "allow"
    logged = [call[1] for call in calls if isinstance(call, tuple)]
    assert any(f"{TASK}/confirmed_speedup" in figures for figures in logged)
    dated = [figures["_timestamp"] for figures in logged if "_timestamp" in figures]
    assert dated == [point.at_s for news in told.news for point in news.points] * (kind is Wandb)
    assert {"report.html", "verdicts.json", "card.json"} < files.keys()
    assert any(name.startswith("kernels/") for name in files)


@pytest.mark.filterwarnings("ignore")  # those of its own libraries
def test_mlflow_gets_settings_figures_and_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/mlflow.db")
    monkeypatch.chdir(tmp_path)
    folder, said = ended(tmp_path / "run"), []
    assert follow(folder, Mlflow(), OVER, said.append), said
    from mlflow import MlflowClient

    client = MlflowClient()
    (run,) = client.search_runs([client.get_experiment_by_name("kernel-evo").experiment_id])
    assert run.info.status == "FINISHED" and run.data.params["seed"] == "7" and run.data.tags["evo.run"] == "r"
    history = client.get_metric_history(run.info.run_id, f"{TASK}/best_speedup")
    assert [metric.value for metric in history] == sorted(metric.value for metric in history) and len(history) > 3
    assert run.data.metrics[f"{TASK}/confirmed_speedup"] == pytest.approx(3.004, rel=1e-3)
    names = {file.path for file in client.list_artifacts(run.info.run_id)}
    assert {"report.html", "verdicts.json", "kernels"} <= names

    (folder / "track-mlflow.json").unlink()
    assert follow(folder, Mlflow(), OVER, said.append), said
    (same,) = client.search_runs([run.info.experiment_id])
    assert same.info.run_id == run.info.run_id, "a run that was begun without a note of it is gone on with"


@pytest.mark.filterwarnings("ignore")
def test_an_mlflow_that_is_down_is_unreached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    said: list[str] = []
    assert not follow(ended(tmp_path / "run"), Mlflow(), OVER, said.append)
    assert len(said) == 1 and said[0].startswith("mlflow is not reached: ")


def test_a_collector_gets_spans_of_requests_calls_and_stages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("opentelemetry.exporter.otlp.proto.http")
    from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    monkeypatch.setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "none")
    with server() as (address, posted):
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", address)
        assert follow(ended(tmp_path / "run"), Otel(), OVER, silent)
    bodies = [body for path, body in posted if path == "/v1/traces"]
    spans = [
        span
        for body in bodies
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans
        for scope in resource.scope_spans
        for span in scope.spans
    ]
    (call, *_) = [span for span in spans if span.name == "chat big"]
    told = {each.key: each.value for each in call.attributes}
    assert told["gen_ai.usage.cost"].double_value == 0.5 and told["session.id"].string_value == "r"
    (parent,) = [span for span in spans if span.span_id == call.parent_span_id]
    assert parent.name == "rewrite" and parent.trace_id == call.trace_id
    (build, *_) = [span for span in spans if span.name == "build"]
    assert build.end_time_unix_nano - build.start_time_unix_nano == 500_000_000
    assert [span.name for span in spans][-1] == "run r" and len({span.span_id for span in spans}) == len(spans)
    (metrics,) = [ExportMetricsServiceRequest.FromString(body) for path, body in posted if path == "/v1/metrics"]
    names = {metric.name for metric in metrics.resource_metrics[0].scope_metrics[0].metrics}
    assert {"evo.best_speedup", "evo.tokens", "evo.confirmed_speedup"} <= names


@pytest.mark.parametrize("is_slow", [False, True])
def test_a_collector_that_is_down_or_slow_is_unreached(
    is_slow: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    pytest.importorskip("opentelemetry.exporter.otlp.proto.http")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1")
    said: list[str] = []
    with server(answer_s=3.0) as (address, _):
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", address if is_slow else "http://127.0.0.1:9")
        assert not follow(ended(tmp_path / "run"), Otel(), OVER, said.append)
    assert len(said) == 1 and said[0].startswith("otel is not reached: ")


@pytest.mark.slow
def test_ctrl_c_ends_a_look_of_a_tracker_without_a_word(tmp_path: Path) -> None:
    folder = ended(tmp_path / "run")
    command = [sys.executable, "-m", "evo.cli", "track", str(folder), "--notify", "true"]
    with Store(folder, create=False), subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as looking:
        try:
            until = time.monotonic() + 60
            while not list(folder.glob("track-notify-*.json")):
                assert time.monotonic() < until
                time.sleep(0.1)
            looking.send_signal(signal.SIGINT)
            _, said = looking.communicate(timeout=60)
        finally:
            looking.kill()
    assert (looking.returncode, said) == (130, "")


@pytest.mark.slow
def test_a_search_is_followed_by_a_process_that_it_does_not_wait_for(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    folder, said = ended(tmp_path / "run"), []
    with followed(folder, ["--log", "json"], said.append, linger_s=600.0):
        pass
    told = [json.loads(line)["event"] for line in capfd.readouterr().out.splitlines()]
    assert told[-1] == "end" and "verdict" in told and not said

    with followed(folder, ["--log", "json"], said.append, linger_s=0.0):
        pass
    (line,) = said
    assert line.startswith("trackers have not taken everything yet")
    os.waitpid(int(line.partition("process ")[2].split()[0]), 0)  # it comes to its end by itself
