"""Cost of the engine itself: candidates a second, CPU time each, memory and disk, on histories of growing length.

    python -m tests.bench.engine --histories 100 1000 10000 100000 --count 500
    python -m tests.bench.engine --histories 100 1000 10000 --models 1 --http --strategy asking

The driver, the store on disk and the strategy are real; mutators rename a comment, and verdicts come from a script, so
that whatever is measured is the engine. With `--models` also the prompts, the parsing of answers and the rows of
`llm_calls` are real, and models answer at once within the process: the client is left out, which is litellm, HTTP, the
counts and the rows of `llm_sent`. With `--http` these are real too, and the models are a server on loopback in another
process, which shares the machine. The strategy `asking` has every child made by a model, of parents that were told
lately; others ask now and then.

A history is made by the driver, on a journal that commits a thousand times less often, with models that answer within
the process. Then a fresh one resumes the run, and is measured once it has told WARM candidates. With `--ray`
populations are actors on a cluster of this machine, as in `evo run --ray`; what they use besides the driver is in
`actors_cpu_ms`. Prints JSON, one entry for each history:

`first_request_s`, `first_request_cpu_s`: from the start of that process to its first request, with everything it has to
read again.
`candidates_per_s`, `cpu_ms`: of the process with all its threads, per candidate.
`rss_mb`: in the end; `idle_rss_mb`: of the process once everything is imported, before it opens the run.
`calls_per_candidate`: of models, all that the process made over all that it told; `failed_calls` of these.
`disk_mb_per_1000`: size of the run's folder when it is closed, per thousand individuals.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import closing, contextmanager, nullcontext
from pathlib import Path
from typing import Any
from unittest.mock import patch

from evo.config import RunConfig
from evo.individual import Individual
from evo.search.driver import Search
from evo.store import Store
from evo.store.reads import Journal
from fitness.testing import scripted
from mutators.base import Call, CallStatus, Message, Parent, Proposal, Request
from mutators.llm.client import LLM
from mutators.registry import MUTATORS, mutator
from operators.catalog import load
from operators.definition.spec import Operator, Task
from operators.identity import digest
from operators.kernel import Kernel
from tests.evo import model_runs
from tests.inline import InlinePool
from tests.mutators.llm_server import LlmServer, Reply

WARM = 50
"""Candidates told before the clock starts."""
PARENTS = 64
"""Number of parents in `asking`."""
BUFFER = 1_000
"""Commits of a history that are made as one."""
_MARK = re.compile(r"^// child .*$", re.MULTILINE)


class Renaming:
    """A mutator whose child differs from its parent in a comment."""

    name = "renaming"

    def applies(self, kernel: Kernel, operator: Operator) -> bool:
        return False

    def propose(self, request: Request, parents: tuple[Parent, ...], operator: Operator) -> Proposal:
        note_first_request()
        parent = parents[0].kernel
        source = _MARK.sub(f"// child {request.number}", parent.source)
        return Proposal(Kernel(parent.operator, parent.target, source), f"child {request.number}")


class AskingLately(model_runs.Asking):
    """The strategy `asking`, with as many parents to choose from as an archive has."""

    def tell(self, individual: Individual) -> str:
        told = super().tell(individual)
        del self._elites[:-PARENTS]
        return told


class Counted(LLM):
    """The real client, whose calls are counted."""

    asked = failed = 0

    async def complete(self, messages: Sequence[Message], **options: Any) -> Call:
        note_first_request()
        self.asked += 1
        call = await self._answered(messages, **options)
        self.failed += call.status is not CallStatus.ANSWERED
        return call

    async def _answered(self, messages: Sequence[Message], **options: Any) -> Call:
        return await super().complete(messages, **options)


class Instant(Counted):
    """A language model that answers at once with an edit of that comment; its calls are stored as real ones are."""

    async def check(self, asked: int = 0) -> None:
        """There is no server that could be missing."""

    async def _answered(self, messages: Sequence[Message], **options: Any) -> Call:
        request, model, sample = options["request"], options.get("model", ""), options.get("sample", 0)
        answer = edit(messages, f"{request.number} {sample} {len(messages)}")
        key = digest("call", request.digest, sample, model, json.dumps([dict(m) for m in messages]))
        call = Call(
            request.id, options["role"], model, tuple(messages), sample, key, CallStatus.ANSWERED, answer,
            tokens_in=1000, tokens_out=100, attempts=1,
        )  # fmt: skip
        await self.calls.add(call)
        return call


def edit(messages: Sequence[Mapping[str, Any]], what: str) -> str:
    """An answer that edits the comment of the kernel that a conversation began with; later messages may not show it."""
    mark = next(found for message in messages if (found := _MARK.search(str(message["content"]))))
    return f"Change: rename the child\n\n<<<<<<< SEARCH\n{mark[0]}\n=======\n// child {what}\n>>>>>>> REPLACE\n"


async def serve() -> None:
    """Answer at once as an OpenAI-compatible server, whose address is printed, until stdin ends."""
    server = LlmServer(lambda request, number: Reply(edit(request["messages"], f"http {number}")))
    async with server:
        print(server.url, flush=True)
        await asyncio.to_thread(sys.stdin.read)


class Buffered:
    """A journal that acknowledges at once and commits now and then; for making histories only."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.folder = store.folder
        self.notes: list[str] = []
        self._waiting: list[Mapping[str, Sequence[Mapping[str, Any]]]] = []

    def commit(self, rows: Mapping[str, Sequence[Mapping[str, Any]]]) -> Future[None]:
        self._waiting.append(rows)
        if len(self._waiting) >= BUFFER:
            self._flush()
        done: Future[None] = Future()
        done.set_result(None)
        return done

    def rows(self, sql: str, parameters: Sequence[Any] = ()) -> Any:
        self._flush()
        return self.store.rows(sql, parameters)

    def close(self) -> None:
        self._flush()

    def _flush(self) -> None:
        joined: dict[str, list[Mapping[str, Any]]] = {}
        for rows in self._waiting:
            for table, some in rows.items():
                joined.setdefault(table, []).extend(some)
        self._waiting.clear()
        if joined:
            self.store.commit(joined).result()


_first_request: list[tuple[float, float]] = []


def note_first_request() -> None:
    if not _first_request:
        _first_request.append((time.time(), time.process_time()))


def install() -> None:
    """Put the renaming mutator in the place of all that ask no model."""
    for name in ("recombine", "transform", "tune"):
        MUTATORS[name] = f"{__name__}:Renaming"
    mutator.cache_clear()
    patch.dict("evo.config.STRATEGIES", {"asking": f"{__name__}:AskingLately"}).start()


def told(search: Search) -> int:
    return sum(state.told for state in search.states.values())


def config_of(work: Path, arguments: argparse.Namespace) -> RunConfig:
    """A run of softmax with the mark that the mutators look for."""
    folder = work / "marked_softmax"
    if not folder.exists():
        shutil.copytree(load("softmax").folder, folder)
        naive = folder / "naive.cpp"
        naive.write_text(naive.read_text() + "\n// child 0\n")
        description = folder / "operator.toml"
        description.write_text(description.read_text().replace('name = "softmax"', 'name = "marked_softmax"', 1))
    names = [f"openai/instant{number}" for number in range(arguments.models)]
    llm = {"models": names, "api_base": arguments.url or None} if names else None
    return RunConfig(operators=[str(folder)], strategy=arguments.strategy, budget={}, seed=1, llm=llm).resolved()


def session(
    folder: Path, arguments: argparse.Namespace, on_change: Callable[[Search], None], *, fast: bool
) -> tuple[int, int]:
    """Search until `on_change` stops it; returns the calls of models, and how many of them failed."""
    made = config_of(folder.parent, arguments)
    stages = scripted(made.tasks())

    def searching(journal: Journal, make: Callable[[Operator, Task], Any]) -> Search:
        pool = InlinePool(dict(stages), slots=arguments.slots)
        with patch("evo.search.models.LLM", Counted if arguments.url else Instant):
            return Search(made, journal, pool, make_strategy=make, on_change=on_change)

    async def here() -> Search:
        with Store(folder, create=True) as store:
            journal: Journal = Buffered(store) if fast else store
            search = searching(journal, made.make_strategy)
            await search.run()
            journal.close()
            return search

    if arguments.ray and not fast:
        from evo.cluster.backend import ClusterBackend
        from evo.cluster.connection import HERE

        with closing(ClusterBackend(HERE)) as cluster, Store(folder, create=False) as store:
            search = searching(store, cluster.maker(made, store))
            asyncio.run(cluster.run(search.run()))
    else:
        search = asyncio.run(here())
    client: Any = search.models.client
    return (client.library.asked, client.library.failed) if client else (0, 0)


def grow(folder: Path, size: int, arguments: argparse.Namespace) -> None:
    """Make a history of at least so many individuals."""
    session(folder, arguments, lambda search: search.stop() if told(search) >= size else None, fast=True)


def rss_mb() -> float:
    status = Path("/proc/self/status").read_text()
    found = re.search(r"VmRSS:\s+(\d+)", status)
    assert found
    return int(found[1]) / 1024


def actors_cpu_s() -> float:
    """The processor time that the actors of populations have used; 0 without Ray."""
    ticks = 0
    for process in Path("/proc").glob("[0-9]*"):
        try:
            title = (process / "cmdline").read_text()
            fields = (process / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if title.startswith("ray::PopulationActor"):
            ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def probe(folder: Path, arguments: argparse.Namespace) -> dict[str, float]:
    """Measure a resumed run in this process."""
    marks: list[tuple[float, float, float, int]] = []
    first: list[int] = []
    idle_rss = rss_mb()
    memory: list[float] = []

    def on_change(search: Search) -> None:
        count = told(search)
        first.append(count)
        if len(marks) == 0 and count >= first[0] + WARM:
            marks.append((time.perf_counter(), time.process_time(), actors_cpu_s(), count))
        elif len(marks) == 1 and count >= marks[0][3] + arguments.count:
            marks.append((time.perf_counter(), time.process_time(), actors_cpu_s(), count))
            memory.append(rss_mb())
            search.stop()

    calls, failed = session(folder, arguments, on_change, fast=False)
    (wall, cpu, actors, start), (wall_end, cpu_end, actors_end, end) = marks
    size = sum(path.stat().st_size for path in folder.iterdir() if path.is_file())
    return {
        "individuals": end,
        "first_request_s": round(_first_request[0][0] - arguments.started, 2),
        "first_request_cpu_s": round(_first_request[0][1], 2),
        "candidates_per_s": round((end - start) / (wall_end - wall), 1),
        "cpu_ms": round(1e3 * (cpu_end - cpu) / (end - start), 2),
        "actors_cpu_ms": round(1e3 * (actors_end - actors) / (end - start), 2),
        "calls_per_candidate": round(calls / (end - first[0]), 2),
        "failed_calls": failed,
        "idle_rss_mb": round(idle_rss, 1),
        "rss_mb": round(memory[0], 1),
        "disk_mb_per_1000": round(size / 1e6 / end * 1e3, 2),
    }


@contextmanager
def serving() -> Iterator[str]:
    """The address of models in a process of their own."""
    command = [sys.executable, "-m", "tests.bench.engine", "--serve"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdin and server.stdout
        yield server.stdout.readline().strip()
        server.stdin.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--histories", nargs="+", type=int, default=[100, 1_000, 10_000, 100_000])
    parser.add_argument("--count", type=int, default=500, help="candidates that are measured")
    parser.add_argument("--slots", type=int, default=8, help="evaluation workers; twice as many requests are under way")
    parser.add_argument("--strategy", default="islands")
    parser.add_argument("--models", type=int, default=0, help="language models besides the mutators that need none")
    parser.add_argument("--ray", action="store_true", help="populations in actors")
    parser.add_argument("--http", action="store_true", help="ask a server on loopback through the real client")
    parser.add_argument("--url", default="", help=argparse.SUPPRESS)
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--grow", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--probe", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--size", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--started", type=float, default=0.0, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.ray and arguments.models:
        parser.error("--ray goes without --models")
    if arguments.http and not arguments.models:
        parser.error("--http goes with --models")
    install()
    if arguments.serve:
        asyncio.run(serve())
        return
    if arguments.grow:
        grow(arguments.grow, arguments.size, arguments)
        return
    if arguments.probe:
        print(json.dumps(probe(arguments.probe, arguments)))
        return
    ray = ["--ray"] if arguments.ray else []
    passed = [*ray, "--count", str(arguments.count), "--slots", str(arguments.slots), "--strategy", arguments.strategy]
    command = [sys.executable, "-m", "tests.bench.engine", *passed, "--models", str(arguments.models)]
    result: dict[int, Any] = {}
    for size in arguments.histories:
        with tempfile.TemporaryDirectory() as work:
            folder = Path(work) / "run"
            begin = time.monotonic()
            subprocess.run([*command, "--grow", str(folder), "--size", str(size)], check=True)
            print(f"history of {size} made in {time.monotonic() - begin:.0f} s", file=sys.stderr)
            with serving() if arguments.http else nullcontext("") as url:
                started = ["--probe", str(folder), "--url", url, "--started", repr(time.time())]
                done = subprocess.run([*command, *started], check=True, stdout=subprocess.PIPE, text=True)
            result[size] = json.loads(done.stdout)
            print(size, result[size], file=sys.stderr)
    print(json.dumps(result))


if __name__ == "__main__":
    from tests.bench import engine  # not `__main__`: the catalogue of mutators imports it by its name

    engine.main()
