"""Searches whose tracker is well, down from the beginning, killed in the middle, or slow: what it costs, what arrives.

    python -m tests.bench.trackers mlflow otel --fault well down killed slow --budget 60s [--operators softmax gelu]

Each tracker is a real server on loopback: `mlflow server` of the package mlflow (the extra brings its client alone),
and for otel a process that reads OTLP over HTTP with the protocol's own package; `--collector PROGRAM` puts a collector
before it: its words are formatted with {port}, where it listens, and {target}, where it sends to. A model on loopback,
which has a price, answers in about two seconds. *down*: nothing listens until the command has ended; *killed*: SIGKILL
after half of the budget; *slow*: each answer takes 10 s.

A line of JSON tells of each run the seconds of the command, of its session and between the two ends, the exit code,
the candidates that its own store has, and what it said of trackers. `arrived` is what the tracker has a minute after
the command's end at most, when the process beside it is gone; `later` what it has once it is well and `evo track RUN
--to TRACKER` was called; `due` what there is to have.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from evo.store import query
from evo.track.follower import follow
from evo.track.news import News
from evo.track.sinks import Memory
from tests.bench.gpu_throughput import EVO

MODEL = "openai/scripted"
PRICES = json.dumps({MODEL: {"input": 1.0, "output": 2.0}})
"""Dollars per million tokens."""
ANSWER_S = 2.0
SLOW_S = 10.0
"""Seconds that each answer of a slow tracker takes."""
STARTS_S = 120.0
"""Longest time that a tracker's server may take to start."""
FAULTS = ("well", "down", "killed", "slow")
Held = dict[str, Any]
"""Counts of what a tracker has, or is due."""


class Due:
    """A sink that counts what a tracker is due."""

    name = "due"
    period_s = 0.0

    def __init__(self) -> None:
        self.held: defaultdict[str, float] = defaultdict(float)

    def take(self, news: News, memory: Memory) -> None:
        """See `evo.track.sinks.NewsSink`."""
        self.held["figures"] += sum(len(point.figures) for point in news.points)
        self.held["requests"] += len(news.rows["requests"])
        calls = news.rows["calls"]
        self.held["calls"] += len(calls)
        self.held["tokens"] += sum((row["tokens_in"] or 0) + (row["tokens_out"] or 0) for row in calls)
        self.held["usd"] += round(sum(row["cost_usd"] or 0.0 for row in calls), 6)
        for stage in ("build", "verify", "time", "confirm"):
            self.held["stages"] += sum(bool(row[f"{stage}_ms"]) for row in news.rows["verdicts"])


class MlflowServer:
    """`mlflow server` with a database of its own."""

    compared = ("figures",)
    """Counts that are the same as what is due where nothing is missing."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def command(self, port: int) -> list[str]:
        """The command that serves."""
        return [
            sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(port), "--workers", "1",
            "--backend-store-uri", f"sqlite:///{self._folder}/mlflow.db",
            "--artifacts-destination", f"{self._folder}/artifacts",
        ]  # fmt: skip

    def environment(self, url: str) -> dict[str, str]:
        """The environment of a search that it tracks."""
        return {"MLFLOW_TRACKING_URI": url}

    def held(self, url: str) -> Held:
        """Count what it has."""
        from mlflow import MlflowClient

        client, found = MlflowClient(url), Counter[str]()
        experiment = client.get_experiment_by_name("kernel-evo")
        runs = client.search_runs([experiment.experiment_id]) if experiment else []
        for run in runs:
            found["params"] += len(run.data.params)
            found["metrics"] += len(run.data.metrics)
            found["figures"] += sum(len(client.get_metric_history(run.info.run_id, key)) for key in run.data.metrics)
            found["artifacts"] += sum(
                len(client.list_artifacts(run.info.run_id, each.path)) if each.is_dir else 1
                for each in client.list_artifacts(run.info.run_id)
            )
        return {"runs": len(runs), "status": [run.info.status for run in runs], **found}


class OtelServer:
    """A process that keeps what comes by OTLP over HTTP in a file; it may stand behind a collector."""

    compared = ("requests", "calls", "tokens", "usd", "stages", "figures")

    def __init__(self, folder: Path) -> None:
        self._kept = folder / "kept.jsonl"

    def command(self, port: int) -> list[str]:
        """The command that serves."""
        return [sys.executable, "-m", "tests.bench.trackers", "otel", "--serve-otlp", str(port), str(self._kept)]

    def environment(self, url: str) -> dict[str, str]:
        """The environment of a search that it tracks."""
        return {"OTEL_EXPORTER_OTLP_ENDPOINT": url}

    def held(self, url: str) -> Held:
        """Count what it has; a span that came twice counts once."""
        lines = [json.loads(line) for line in self._kept.read_text().splitlines()] if self._kept.exists() else []
        spans = {line["span"]: line for line in lines if "span" in line}
        gauges = {tuple(line["gauge"]) for line in lines if "gauge" in line}
        calls = [span for span in spans.values() if span["name"].startswith("chat ")]
        stages = [span for span in spans.values() if span["name"] in ("build", "verify", "time", "confirm")]
        runs = [span for span in spans.values() if span["name"].startswith("run ")]
        return {
            "runs": len(runs),
            "requests": len(spans) - len(calls) - len(stages) - len(runs),
            "calls": len(calls),
            "tokens": sum(int(span["tokens"]) for span in calls),
            "usd": round(sum(span["usd"] for span in calls), 6),
            "stages": len(stages),
            "figures": len(gauges),
        }


SERVERS: dict[str, type[MlflowServer] | type[OtelServer]] = {"mlflow": MlflowServer, "otel": OtelServer}


def serve_otlp(port: int, kept: Path) -> None:
    """Keep what is posted, a line for each span and each point of a gauge."""
    from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    def told(path: str, body: bytes) -> Iterator[dict[str, Any]]:
        if path.endswith("/traces"):
            for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
                for span in (span for scope in resource.scope_spans for span in scope.spans):
                    facts = {each.key: each.value for each in span.attributes}
                    tokens = [facts[f"gen_ai.usage.{way}_tokens"].int_value for way in ("input", "output")
                              if f"gen_ai.usage.{way}_tokens" in facts]  # fmt: skip
                    usd = facts["gen_ai.usage.cost"].double_value if "gen_ai.usage.cost" in facts else 0.0
                    yield {"span": span.span_id.hex(), "name": span.name, "tokens": sum(tokens), "usd": usd}
        if path.endswith("/metrics"):
            for block in ExportMetricsServiceRequest.FromString(body).resource_metrics:
                for metric in (metric for scope in block.scope_metrics for metric in scope.metrics):
                    for point in metric.gauge.data_points:
                        labels = sorted(each.value.string_value for each in point.attributes)
                        yield {"gauge": [metric.name, *labels, point.time_unix_nano, point.as_double]}

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            body = gzip.decompress(body) if self.headers.get("Content-Encoding") == "gzip" else body
            with kept.open("a") as file:
                file.writelines(f"{json.dumps(line)}\n" for line in told(self.path, body))
            self.send_response(200)
            self.send_header("Content-Type", "application/x-protobuf")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            pass

    ThreadingHTTPServer(("127.0.0.1", port), Handler).serve_forever()


@contextmanager
def slowed(target: str) -> Iterator[str]:
    """An address that passes all requests on, and each answer after `SLOW_S`."""

    class Handler(BaseHTTPRequestHandler):
        def _pass(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            kept = {name: value for name, value in self.headers.items() if name.lower() not in ("host", "connection")}
            request = urllib.request.Request(target + self.path, body or None, kept, method=self.command)
            try:
                with urllib.request.urlopen(request) as answer:
                    status, headers, text = answer.status, answer.headers, answer.read()
            except urllib.error.HTTPError as error:
                status, headers, text = error.code, error.headers, error.read()
            time.sleep(SLOW_S)
            with suppress(OSError):  # who waited is gone
                self.send_response(status)
                self.send_header("Content-Type", headers.get("Content-Type") or "application/json")
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

        do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _pass

        def log_message(self, format: str, *args: object) -> None:
            pass

    serving = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    serving.daemon_threads = True
    threading.Thread(target=serving.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{serving.server_port}"
    finally:
        serving.shutdown()
        serving.server_close()


def free_port() -> int:
    """A port of loopback that nothing listens on."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def started(commands: Sequence[Sequence[str]], port: int) -> list[subprocess.Popen[bytes]]:
    """Processes of a tracker, which answer at the port, each the head of a group."""
    begun = [
        subprocess.Popen(command, start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for command in commands
    ]
    last = time.monotonic() + STARTS_S
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return begun
        except OSError:
            if time.monotonic() > last:
                killed(begun)
                raise SystemExit(f"{commands[-1][0]} does not listen") from None
            time.sleep(0.2)


def killed(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    """End them and what they began, at once."""
    for process in processes:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def tracked(options: argparse.Namespace, tracker: str, fault: str, model: str) -> dict[str, Any]:
    """Run one search, and return what became of it and of its tracker's data."""
    budget_s = float(re.sub(r"\D", "", options.budget))
    with tempfile.TemporaryDirectory() as place, ExitStack() as stack:
        folder = Path(place)
        server, port = SERVERS[tracker](folder), free_port()
        url = f"http://127.0.0.1:{port}"
        commands = [server.command(port)]
        if options.collector and tracker == "otel":
            behind = free_port()
            words = options.collector.format(port=port, target=f"http://127.0.0.1:{behind}")
            commands = [server.command(behind), shlex.split(words)]
        serving = started(commands, port) if fault != "down" else []
        stack.callback(lambda: killed(serving))
        asked = stack.enter_context(slowed(url)) if fault == "slow" else url
        if fault == "killed":
            timer = threading.Timer(budget_s / 2, killed, [serving])
            timer.start()
        found = _searched(options, tracker, server.environment(asked), model, folder)
        found["arrived"] = {} if fault in ("down", "killed") else server.held(url)
        if fault in ("down", "killed"):
            serving = started(commands, port)
            found["arrived"] = server.held(url)
        (run,) = (folder / "runs").iterdir()
        begun = time.monotonic()
        sent = subprocess.run(
            [*EVO, "track", str(run), "--to", tracker],
            env=os.environ | server.environment(url), capture_output=True, text=True, check=False,
        )  # fmt: skip
        found |= {"track_s": round(time.monotonic() - begun, 1), "track_exit_code": sent.returncode}
        found["later"] = server.held(url)
        found["due"] = _due(run)
        found["is_whole"] = all(found["later"].get(name) == found["due"][name] for name in server.compared)
        return found


def _searched(
    options: argparse.Namespace, tracker: str, environment: Mapping[str, str], model: str, folder: Path
) -> dict[str, Any]:
    command = [
        *EVO, "run", *options.operators, "--target", "cpu", "--budget", options.budget, "--llm", MODEL,
        "--set", f"llm.api_base={model}", "--set", f"llm.prices={PRICES}",
        *([] if options.untracked else ["--track", tracker]),
    ]  # fmt: skip
    said = folder / "said"
    begun = time.time()
    with said.open("wb") as file:
        run = subprocess.run(
            command, env=os.environ | environment | {"EVO_RUNS": str(folder / "runs")},
            stdout=subprocess.DEVNULL, stderr=file, check=False,
        )  # fmt: skip
    ended = time.time()
    (kept,) = (folder / "runs").iterdir()
    left = re.search(r"process (\d+) goes on", said.read_text())
    while left and Path(f"/proc/{left[1]}").exists():
        time.sleep(0.2)
    (times,) = query(
        kept, "select epoch(min(created_at)) as begun, epoch(max(created_at)) as ended from events"
    ).to_pylist()
    (tells,) = query(kept, "select count(*) as n from tells where status not in ('duplicate', 'no_child')").to_pylist()
    words = [line for line in said.read_text().splitlines() if re.search(r"track|otel|mlflow|kernel-evo", line)]
    return {
        "tracker": tracker,
        "seconds": round(ended - begun, 1),
        "session_s": round(times["ended"] - times["begun"], 1),
        "after_session_s": round(ended - times["ended"], 1),
        "beside_after_s": round(time.time() - ended, 1),
        "exit_code": run.returncode,
        "candidates": tells["n"],
        "said": [re.sub(r"/tmp/\S*/runs/", "runs/", line) for line in words],
    }


def _due(run: Path) -> Held:
    over, due = threading.Event(), Due()
    over.set()
    assert follow(run, due, over, print)
    return dict(due.held)


def main() -> None:
    """Print a line for each tracker and fault."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trackers", nargs="+", choices=SERVERS)
    parser.add_argument("--fault", nargs="+", choices=FAULTS, default=FAULTS)
    parser.add_argument("--operators", nargs="+", default=["softmax", "gelu"])
    parser.add_argument("--budget", default="60s")
    parser.add_argument("--collector", default="", help="command of a collector before the receiver of otel")
    parser.add_argument("--untracked", action="store_true", help="the same search without a tracker")
    parser.add_argument("--serve-otlp", nargs=2, metavar=("PORT", "FILE"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve_otlp:
        serve_otlp(int(options.serve_otlp[0]), Path(options.serve_otlp[1]))
        return
    # Without a network `mlflow server` waits for ever where litellm is installed, which looks for prices in a thread.
    os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    with subprocess.Popen(
        [sys.executable, "-m", "tests.bench.model_searches", "--serve", str(ANSWER_S)],
        stdout=subprocess.PIPE, text=True,
    ) as model:  # fmt: skip
        assert model.stdout
        url = model.stdout.readline().strip()
        try:
            for tracker in options.trackers:
                for fault in options.fault:
                    print(json.dumps({"fault": fault, **tracked(options, tracker, fault, url)}), flush=True)
        finally:
            model.terminate()


if __name__ == "__main__":
    main()
