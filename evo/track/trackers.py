"""The clients of trackers: MLflow, Weights & Biases, Trackio, and OpenTelemetry by OTLP over HTTP.

All are set up as their own documentation says, by environment variables: MLFLOW_TRACKING_URI, WANDB_API_KEY,
OTEL_EXPORTER_OTLP_ENDPOINT and so on. Each class imports its library when it is first used.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from evo.api import Row
from evo.track.news import News, NewsPoint, artifacts
from evo.track.sinks import Memory, Unreached, reaching

PROJECT = "kernel-evo"
"""The experiment or project of runs, unless the environment names another one."""
MOST_AT_ONCE, MOST_LETTERS = 500, 500
"""Metrics or settings in one call of MLflow; letters of a setting's value."""
ENDED = {"finished": "FINISHED", "stopped": "KILLED"}
"""By state of a run that of MLflow's; others have failed."""
STAGES = ("build", "verify", "time", "confirm")
"""Parts of an evaluation, in their order; each has a column of milliseconds."""


class Mlflow:
    """A run is a run of MLflow: settings are parameters, figures metrics, the report and the kernels artifacts."""

    name = "mlflow"
    period_s = 10.0

    def take(self, news: News, memory: Memory) -> None:
        """See `evo.track.sinks.NewsSink`."""
        with reaching():
            from mlflow.entities import Metric, Param

            run = memory.get("run") or self._begun(news)
            memory["run"] = run
            if not memory.get("params"):
                pairs = [Param(_key(name), str(value)[:MOST_LETTERS]) for name, value in news.settings.items()]
                for some in _batches(pairs, MOST_AT_ONCE // 5):
                    self._client.log_batch(run, params=some)
                memory["params"] = True
            if any(row["kind"] == "session" for row in news.rows["events"]) and memory.pop("ended", False):
                self._client.update_run(run, status="RUNNING")
            metrics = [
                Metric(_key(f"{point.task}/{name}"), value, int(1e3 * point.at_s), point.seq)
                for point in news.points
                for name, value in point.figures.items()
            ]
            for some in _batches(metrics, MOST_AT_ONCE):
                self._client.log_batch(run, metrics=some)
            if news.is_over:
                for name, text in artifacts(news).items():
                    self._client.log_text(run, text, name)
                self._client.set_terminated(run, ENDED.get(news.state, "FAILED"))
                memory["ended"] = True

    @cached_property
    def _client(self) -> Any:
        # The library's own patience is minutes a call; here the next look is the next try.
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "20")
        from mlflow import MlflowClient

        return MlflowClient()

    def _begun(self, news: News) -> str:
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME", PROJECT)
        found = self._client.get_experiment_by_name(name)
        experiment = found.experiment_id if found else self._client.create_experiment(name)
        # A process that was left while the server was slow may have begun it without a note of it.
        if found and (known := self._client.search_runs([experiment], f"tags.`evo.run` = '{news.id}'", max_results=1)):
            return str(known[0].info.run_id)
        tags = {"evo.run": news.id, "mlflow.source.name": PROJECT}
        begun = self._client.create_run(experiment, int(1e3 * news.about["created_at"].timestamp()), tags, news.id)
        return str(begun.info.run_id)


def _batches(items: Sequence[Any], size: int) -> Iterator[Sequence[Any]]:
    return (items[at : at + size] for at in range(0, len(items), size))


def _key(name: str) -> str:
    """The name with the letters that MLflow allows."""
    return re.sub(r"[^\w\-. /:]", "_", name)


class Wandb:
    """A run is a run of Weights & Biases: settings are its config, figures its history, the rest an artifact."""

    name = "wandb"
    period_s = 10.0
    _begun: Any = None

    def take(self, news: News, memory: Memory) -> None:
        """See `evo.track.sinks.NewsSink`."""
        with reaching():
            self._begun = self._begun or self._begin(news)
            for point in news.points:
                figures = {f"{point.task}/{name}": value for name, value in point.figures.items()}
                self._begun.log({**figures, **self._moment(point)}, step=point.seq)
            if news.is_over:
                self._leave(news)
                self._begun.finish()

    def _begin(self, news: News) -> Any:
        import wandb

        project = os.environ.get("WANDB_PROJECT", PROJECT)
        return wandb.init(project=project, id=_slug(news.id), name=news.id, resume="allow", config=news.settings)

    def _moment(self, point: NewsPoint) -> dict[str, float]:
        """The time of a step, where it is told at all: the time at which it is sent counts otherwise."""
        return {"_timestamp": point.at_s}

    def _leave(self, news: News) -> None:
        artifact = import_module(self.name).Artifact(_slug(news.id), type="run")
        with TemporaryDirectory() as place:
            for name, text in artifacts(news).items():
                file = Path(place, name)
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(text, encoding="utf-8")
            artifact.add_dir(place)
            self._begun.log_artifact(artifact)


class Trackio(Wandb):
    """The same with Trackio, whose calls are named alike; it dates what it gets itself."""

    name = "trackio"

    def _begin(self, news: News) -> Any:
        import trackio

        project = os.environ.get("TRACKIO_PROJECT", PROJECT)
        return trackio.init(project=project, name=news.id, resume="allow", config=news.settings)

    def _moment(self, point: NewsPoint) -> dict[str, float]:
        return {}


def _slug(name: str) -> str:
    return re.sub(r"[^\w\-.]", "-", name)


class Otel:
    """OTLP over HTTP: a trace for each request, with spans of its model's calls and its evaluations' stages; gauges.

    Ids follow from the run's own, so that what is sent twice is the same span. A run is a session (`session.id`).
    OTEL_METRICS_EXPORTER=none leaves the gauges out, for collectors that take traces alone.
    """

    name = "otel"
    period_s = 10.0

    def take(self, news: News, memory: Memory) -> None:
        """See `evo.track.sinks.NewsSink`."""
        with reaching():
            self._send_spans([*self._spans(news)])
            if os.environ.get("OTEL_METRICS_EXPORTER") != "none":
                self._send_gauges(news)

    @cached_property
    def _resource(self) -> Any:
        from opentelemetry.sdk.resources import Resource

        return Resource.create({"service.name": os.environ.get("OTEL_SERVICE_NAME", PROJECT)})

    @cached_property
    def _exporters(self) -> tuple[Any, Any]:
        from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

        return OTLPSpanExporter(), OTLPMetricExporter()

    def _send_spans(self, spans: list[Any]) -> None:
        from opentelemetry.sdk.trace.export import SpanExportResult

        for some in _batches(spans, MOST_AT_ONCE):
            if self._exporters[0].export(some) is not SpanExportResult.SUCCESS:
                raise Unreached("the collector took no spans")

    def _spans(self, news: News) -> Iterator[Any]:
        run = {"session.id": news.id, "evo.run": news.id}
        for row in news.rows["requests"]:
            facts = {"evo.task": row["task"], "evo.status": row["status"], "evo.kernel": row["kernel_id"]}
            yield self._span(
                news, row["request_id"], row["mutator"] or "request", _ns(row["asked_at"]), _ns(row["created_at"]),
                {**run, **facts, "evo.mutator": row["mutator"], "gen_ai.request.model": row["model"]},
            )  # fmt: skip
        for row in news.rows["calls"]:
            facts = {
                "gen_ai.operation.name": "chat", "gen_ai.request.model": row["model"], "evo.role": row["role"],
                "gen_ai.usage.input_tokens": row["tokens_in"], "gen_ai.usage.output_tokens": row["tokens_out"],
                "gen_ai.usage.cost": row["cost_usd"], "evo.status": row["status"],
            }  # fmt: skip
            end = _ns(row["created_at"])
            yield self._span(
                news, row["request_id"], f"chat {row['model']}", end - int(1e9 * (row["latency_s"] or 0.0)), end,
                {**run, **facts}, part=row["call_id"], error=row["error"] or "",
            )  # fmt: skip
        for row in news.rows["verdicts"]:
            yield from self._stages(news, run, row)
        if news.is_over:
            begun, last = _ns(news.about["created_at"]), [row["created_at"] for row in news.rows["events"]]
            end = _ns(max(last)) if last else begun
            yield self._span(news, "", f"run {news.id}", begun, end, {**run, "evo.state": news.state})

    def _stages(self, news: News, run: Mapping[str, str], row: Row) -> Iterator[Any]:
        """The parts of an evaluation, which end with its verdict."""
        facts = {f"evo.{name}": row[name] for name in ("task", "status", "level", "worker", "speedup")}
        facts["evo.kernel"] = row["kernel_id"]
        end = _ns(row["created_at"])
        for stage in reversed([stage for stage in STAGES if row[f"{stage}_ms"]]):
            begun = end - int(1e6 * row[f"{stage}_ms"])
            trace = row["request_id"] or row["evaluation_id"]
            yield self._span(news, trace, stage, begun, end, {**run, **facts}, part=f"{row['evaluation_id']}/{stage}")
            end = begun

    def _span(
        self, news: News, trace: str, name: str, begun_ns: int, end_ns: int, facts: Mapping[str, Any],
        *, part: str = "", error: str = "",
    ) -> Any:  # fmt: skip
        """The root span of a trace, or a `part` of it."""
        from opentelemetry.sdk.trace import ReadableSpan
        from opentelemetry.trace import SpanContext, SpanKind, TraceFlags
        from opentelemetry.trace.status import Status, StatusCode

        def context(of: str) -> SpanContext:
            ids = _number(f"{news.id}/{trace}", 16), _number(f"{news.id}/{trace}/{of}", 8)
            return SpanContext(*ids, is_remote=False, trace_flags=TraceFlags(TraceFlags.SAMPLED))

        return ReadableSpan(
            name, context(part), context("") if part else None, self._resource,
            {name: value for name, value in facts.items() if value is not None},
            kind=SpanKind.CLIENT if name.startswith("chat ") else SpanKind.INTERNAL,
            status=Status(StatusCode.ERROR, error) if error else Status(StatusCode.UNSET),
            start_time=begun_ns, end_time=end_ns,
        )  # fmt: skip

    def _send_gauges(self, news: News) -> None:
        from opentelemetry.sdk.metrics.export import (
            Gauge,
            Metric,
            MetricExportResult,
            MetricsData,
            NumberDataPoint,
            ResourceMetrics,
            ScopeMetrics,
        )
        from opentelemetry.sdk.util.instrumentation import InstrumentationScope

        held: dict[str, list[Any]] = {}
        for point in news.points:
            for name, value in point.figures.items():
                labels = {"evo.run": news.id, "evo.task": point.task}
                held.setdefault(name, []).append(NumberDataPoint(labels, 0, int(1e9 * point.at_s), value))
        if not held:
            return
        metrics = [Metric(f"evo.{name}", None, None, Gauge(points)) for name, points in held.items()]
        scope = ScopeMetrics(InstrumentationScope(PROJECT), metrics, "")
        sent = self._exporters[1].export(MetricsData([ResourceMetrics(self._resource, [scope], "")]))
        if sent is not MetricExportResult.SUCCESS:
            raise Unreached("the collector took no metrics; OTEL_METRICS_EXPORTER=none sends none")


def _ns(moment: Any) -> int:
    return int(1e9 * moment.timestamp())


def _number(name: str, size: int) -> int:
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:size], "big") or 1
