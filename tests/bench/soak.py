"""Let a search go on through every kind of fault that a night may bring, and tell what each of them cost.

    python -m tests.bench.soak --minutes 10 --seed 1
    python -m tests.bench.soak --minutes 10 --seed 1 --ray

The search is one of several small operators on the cpu target, with mutators of its own and a scripted model on
loopback. Faults come in a seeded order, one every `--every` seconds: processes that are killed or stopped, files and
caches that are removed, disks, descriptors and memory that run out, a provider that is slow, broken or out. A session
that ends is resumed, until the run's time is over. With rights to mount a file system in memory, the disk that fills up
is one; else a limit on the size of files stands for it. The table tells for each fault what became of the session and
how many seconds it took until requests came to an end again; counts that must be zero are the exit code.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from evo.session import BUILD_FOLDER
from evo.store import StoreError, query
from fitness.sandbox.native import cache_folder
from tests.bench.kills import EVO, Balance, Provider, alive, called, command_line, descendants
from tests.evo.model_runs import MODEL
from tests.mutators.llm_server import Reply

OPERATORS = ("tests/data/axpb", "softmax", "vector_add", "prefix_sum", "rms_norm", "gelu")
DISK_BYTES = 400 << 20
STUCK_S = 30.0
"""A search that goes on has finished another request or verdict by then, after a fault is over."""
CONFIRMS_S = 90.0
"""The same while leaders are confirmed: nothing else is finished then, and one that is disturbed begins again."""
START_S = 60.0
"""The same where a session or a cluster has to begin first: all workers and populations load what they need."""
SAMPLE_S = 5.0
GONE_S = 15.0
"""Time within which processes end whose search has ended."""
MUST_BE_ZERO = ("rows_lost", "answers_lost", "judged_twice", "stuck", "processes_left", "files_left", "tracebacks")
Undo = Callable[[], None]


def nothing() -> None:
    """There is nothing to be undone."""


class FaultyProvider(Provider):
    """A model that answers, or whatever `fault` makes of a request."""

    def __init__(self) -> None:
        super().__init__(latency_s=1.0)
        self.fault: Reply | None = None

    def _answer(self, request: Mapping[str, Any], number: int) -> Reply:
        return self.fault or super()._answer(request, number)


@dataclass
class Stage:
    """Target of faults: a session that runs, and all that it lives on."""

    process: subprocess.Popen[bytes]
    folder: Path
    cache: Path
    disk: Path | None
    """A file system of its own, if there is one."""
    provider: FaultyProvider
    rng: random.Random

    @property
    def below(self) -> set[int]:
        return descendants(self.process.pid)

    def workers(self) -> list[int]:
        return [pid for pid in self.below if "evo.workers.worker" in command_line(pid)]

    def some(self, *titles: str) -> list[int]:
        """One process that calls itself so, if there is one now."""
        found = [pid for title in titles for pid in called(self.below, title)]
        return [self.rng.choice(found)] if found else []


Pids = Callable[[Stage], list[int]]
Begin = Callable[[Stage], Undo | None]


@dataclass(frozen=True)
class Fault:
    """`begin` brings it about and returns how it is undone after `holds_s`; None: there was nothing to befall."""

    name: str
    begin: Begin
    holds_s: float = 0.0
    ends: bool = False
    """Whether a session is to end with it."""
    ray: bool = False
    cluster: bool = False
    """Whether it takes the cluster, so that the search goes on with another one."""
    silent: bool = False
    """Whether who asks the run meanwhile waits until it is over."""


def signalled(pids: Pids, number: int) -> Begin:
    def begin(stage: Stage) -> Undo | None:
        found = pids(stage)
        for pid in found:
            with suppress(ProcessLookupError):
                os.kill(pid, number)

        def undo() -> None:
            for pid in found if number == signal.SIGSTOP else ():
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)

        return undo if found else None

    return begin


def limited(pids: Pids, what: int, most: Callable[[int], int]) -> Begin:
    """A soft limit of these processes, by what each of them has."""

    def begin(stage: Stage) -> Undo | None:
        before = {}
        for pid in pids(stage):
            with suppress(OSError):
                before[pid] = resource.prlimit(pid, what)
                resource.prlimit(pid, what, (most(pid), before[pid][1]))

        def undo() -> None:
            for pid, limits in before.items():
                with suppress(OSError):
                    resource.prlimit(pid, what, limits)

        return undo if before else None

    return begin


def removed(paths: Callable[[Stage], list[Path]]) -> Begin:
    def begin(stage: Stage) -> Undo | None:
        found = paths(stage)
        for path in found:
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)
        return nothing if found else None

    return begin


def answering(reply: Reply) -> Begin:
    def begin(stage: Stage) -> Undo | None:
        stage.provider.fault = reply

        def undo() -> None:
            stage.provider.fault = None

        return undo

    return begin


def filled(stage: Stage) -> Undo | None:
    """The disk of the run is full."""
    if stage.disk is None:
        return limited(lambda s: [s.process.pid, *s.workers()], resource.RLIMIT_FSIZE, lambda _: 1 << 14)(stage)
    filler = stage.disk / "filler"
    with suppress(OSError), filler.open("wb", buffering=0) as file:
        while file.write(b"\0" * (1 << 16)):
            pass
    return lambda: filler.unlink(missing_ok=True)


def asked(stage: Stage) -> Undo | None:
    """Many readers at once."""
    readers = [
        subprocess.Popen([*EVO, "status", str(stage.folder)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for _ in range(6)
    ]

    def undo() -> None:
        for reader in readers:
            reader.kill()
            reader.wait()

    return undo


def busy(stage: Stage) -> Undo | None:
    """Others keep every core busy."""
    others = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2 * (os.cpu_count() or 1))]

    def undo() -> None:
        for other in others:
            other.kill()
            other.wait()

    return undo


def driver(stage: Stage) -> list[int]:
    return [stage.process.pid]


def one_worker(stage: Stage) -> list[int]:
    found = stage.workers()
    return [stage.rng.choice(found)] if found else []


def in_build(stage: Stage) -> list[Path]:
    found = [path for path in (stage.folder / BUILD_FOLDER).rglob("*") if path.is_file() and path.suffix == ".so"]
    return [stage.rng.choice(sorted(found))] if found else []


def open_files(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


def address_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[0]) * resource.getpagesize()


KILL, STOP = signal.SIGKILL, signal.SIGSTOP
FAULTS = (
    Fault("driver killed", signalled(driver, KILL), ends=True),
    Fault("driver: Ctrl-C", signalled(driver, signal.SIGINT), ends=True),
    Fault("driver: SIGTERM", signalled(driver, signal.SIGTERM), ends=True),
    Fault("driver: SIGHUP", signalled(driver, signal.SIGHUP), ends=True),
    Fault("driver stopped", signalled(driver, STOP), 6.0, silent=True),
    Fault("worker killed", signalled(one_worker, KILL)),
    Fault("all workers killed", signalled(Stage.workers, KILL)),
    Fault("worker stopped", signalled(one_worker, STOP), 8.0),
    Fault("all workers stopped", signalled(Stage.workers, STOP), 8.0),
    Fault("compiler killed", signalled(lambda s: s.some("cc1plus", "/usr/lib/gcc", "g++", "as"), KILL)),
    Fault("runner killed", signalled(lambda s: [p for p in s.below if "/runner-" in command_line(p)], KILL)),
    Fault("jail-* removed", removed(lambda s: sorted(s.cache.glob("jail-*")))),
    Fault("cache removed", removed(lambda s: [s.cache])),
    Fault("cache's headers removed", removed(lambda s: sorted(s.cache.glob("headers-*")))),
    Fault("build/ removed", removed(lambda s: [s.folder / BUILD_FOLDER])),
    Fault("a library in build/ removed", removed(in_build)),
    Fault("locks in build/ removed", removed(lambda s: sorted((s.folder / BUILD_FOLDER).glob("*.lock")))),
    Fault("disk full", filled, 12.0),
    Fault("driver: size of files", limited(driver, resource.RLIMIT_FSIZE, lambda _: 1 << 14), 8.0),
    Fault("driver: descriptors", limited(driver, resource.RLIMIT_NOFILE, open_files), 8.0),
    Fault("worker: descriptors", limited(one_worker, resource.RLIMIT_NOFILE, open_files), 8.0),
    Fault("all workers: descriptors", limited(Stage.workers, resource.RLIMIT_NOFILE, lambda _: 6), 8.0),
    Fault("worker: memory", limited(one_worker, resource.RLIMIT_AS, address_bytes), 8.0),
    Fault("all workers: memory", limited(Stage.workers, resource.RLIMIT_AS, lambda _: 1 << 28), 8.0),
    Fault("model: 429", answering(Reply(status=429, error="Rate limit reached")), 10.0),
    Fault("model: 500", answering(Reply(status=500)), 10.0),
    Fault("model: 503 for long", answering(Reply(status=503, error="overloaded")), 25.0),
    Fault("model: slow", answering(Reply("no kernel", delay_s=15.0)), 15.0),
    Fault("model: no JSON", answering(Reply(body=b"<html>502</html>")), 10.0),
    Fault("model: cut off", answering(Reply("no kernel", cut=True)), 10.0),
    Fault("model: closes", answering(Reply(drop=True)), 10.0),
    Fault("model: says nothing", answering(Reply("")), 10.0),
    Fault("six readers", asked, 8.0),
    Fault("busy machine", busy, 8.0),
    Fault("population's actor killed", signalled(lambda s: s.some("ray::PopulationActor"), KILL), ray=True),
    Fault("worker's actor killed", signalled(lambda s: s.some("ray::WorkerActor"), KILL), ray=True),
    Fault("raylet killed", signalled(lambda s: s.some("raylet"), KILL), ray=True, cluster=True),
    Fault("GCS killed", signalled(lambda s: s.some("gcs_server"), KILL), ray=True, cluster=True),
)  # fmt: skip


@dataclass
class Soak:
    """The run through all its sessions, and what was seen of it."""

    command: list[str]
    options: list[str]
    runs: Path
    cache: Path
    disk: Path | None
    provider: FaultyProvider
    rng: random.Random
    counts: Counter[str] = field(default_factory=Counter)
    lines: list[tuple[str, str, float | None]] = field(default_factory=list)
    samples: list[tuple[float, str, float, int]] = field(default_factory=list)
    """When, of which kind of process, MiB and descriptors."""
    sizes: list[tuple[float, int, int, int, int]] = field(default_factory=list)
    """When, individuals, bytes of the database, of the cache, of `build/`."""
    ended_at: list[float] = field(default_factory=list)
    began: float = field(default_factory=time.monotonic)
    balance: Balance | None = None
    sampled: float = 0.0
    below: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._begin(self.command)

    def _begin(self, command: list[str]) -> None:
        self.said = (self.runs.parent / f"said-{len(self.ended_at)}").open("w+")
        self.process = subprocess.Popen([*EVO, *command], stdout=subprocess.DEVNULL, stderr=self.said)

    def told(self) -> int:
        """Requests that are finished and verdicts, as far as can be read now; -1: they cannot.

        At the end of a run nothing is asked any more, and leaders are confirmed.
        """
        self.sample()
        try:
            if self.balance is None:
                folders = list(self.runs.glob("*/evo.duckdb"))
                if not folders:
                    return -1
                self.balance = Balance(folders[0].parent)
            counted = "select (select count(*) from tells) + (select count(*) from evaluations) as n"
            return int(query(self.balance.folder, counted).to_pylist()[0]["n"])
        except (StoreError, OSError):
            return -1

    @property
    def confirms(self) -> bool:
        """Whether its last line of progress says that it confirms leaders."""
        text = Path(self.said.name).read_text()
        return "confirming" in text[text.rfind(" s, ") :]

    def ended(self) -> str:
        """The end of the session in words, once it has ended; it is counted what it left."""
        self.process.wait()
        self.ended_at.append(time.monotonic())
        self.said.seek(0)
        lines = [line for line in self.said.read().splitlines() if line.strip()]
        self.counts["tracebacks"] += any(line.startswith("Traceback") for line in lines)
        if any(line.startswith("Traceback") for line in lines):
            print("\n".join(lines[-30:]), file=sys.stderr)
        deadline_s = time.monotonic() + GONE_S
        while (left := alive(self.below)) and time.monotonic() < deadline_s:
            time.sleep(0.1)
        for pid in left:
            print(f"left: {pid} {command_line(pid)[:160]}".replace("\0", " "), file=sys.stderr)
        self.counts["processes_left"] += len(left)
        self.below = set()
        return f"rc {self.process.returncode}: {lines[-1][:150] if lines else 'without a word'}"

    def go_on(self) -> None:
        """Another session."""
        assert self.balance
        self._begin(["resume", str(self.balance.folder), *self.options])

    def await_progress(self, told: int, limit_s: float) -> float | None:
        """Seconds until more than so many requests are finished; None: that does not come. Sessions that end go on.

        While leaders are confirmed, or are about to be, that takes CONFIRMS_S at most.
        """
        began = time.monotonic()
        while (waited_s := time.monotonic() - began) < limit_s or (waited_s < CONFIRMS_S and self.confirms):
            if self.told() > told:
                return time.monotonic() - began
            if self.process.poll() is not None:
                return time.monotonic() - began
            time.sleep(0.5)
        return None

    def befall(self, fault: Fault) -> bool:
        """Whether there was anything to befall; what came of it is a line of the table."""
        assert self.balance
        told = self.told()
        stage = Stage(self.process, self.balance.folder, self.cache, self.disk, self.provider, self.rng)
        with suppress(StoreError):
            self.balance.look()
        self.below = stage.below
        began, undo = time.monotonic(), fault.begin(stage)
        if undo is None:
            return False
        moved_s = None
        while (held_s := time.monotonic() - began) < fault.holds_s and self.process.poll() is None:
            if moved_s is None and not fault.silent and self.told() > told:
                moved_s = held_s
            time.sleep(0.25)
        undo()
        came, took, limit_s = "goes on", None, START_S if fault.cluster else STUCK_S
        if fault.ends:
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(timeout=90.0)  # answers that are paid are waited for
        while True:
            if self.process.poll() is not None:
                came, limit_s = self.ended(), START_S
                if self.process.returncode == 0:
                    break
                self.counts["sessions_ended_unwanted"] += not fault.ends
                told = max(told, self.told())  # no session writes now
                self.go_on()
            found = moved_s if moved_s is not None else self.await_progress(told, limit_s)
            if self.process.poll() is None:
                took = None if found is None else moved_s or time.monotonic() - began
                break
        self.counts["stuck"] += took is None and self.process.poll() is None
        self.lines.append((fault.name, came, took))
        shown = "never" if took is None else f"{took:.1f} s"
        print(f"{time.monotonic() - self.began:6.0f} s  {fault.name}: {came}; {shown}", file=sys.stderr, flush=True)
        return True

    def sample(self) -> None:
        """Take note of every process, now and then."""
        now = time.monotonic()
        if now - self.sampled < SAMPLE_S:
            return
        self.sampled = now
        for pid in {self.process.pid, *descendants(self.process.pid)}:
            with suppress(OSError, ValueError, IndexError):
                mib = int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * resource.getpagesize() / 2**20
                self.samples.append((now, self.kind(pid), mib, open_files(pid)))
        if self.balance:
            with suppress(StoreError, OSError):
                (row,) = query(self.balance.folder, "select count(*) as n from tells").to_pylist()
                files = self.balance.folder.glob("evo.duckdb*")
                size = sum(file.stat().st_size for file in files)
                self.sizes.append((now, row["n"], size, used(self.cache), used(self.balance.folder / BUILD_FOLDER)))

    def kind(self, pid: int) -> str:
        """The kind of a process, in a word."""
        line = command_line(pid)
        known = {
            "evo.workers.worker": "worker", "ray::Pop": "population", "ray::Worker": "worker's actor",
            "gcs_server": "GCS", "raylet": "raylet", "runner-": "runner", "dashboard": "Ray's agents",
            "ray": "Ray's others",
        }  # fmt: skip
        return "driver" if pid == self.process.pid else next((k for word, k in known.items() if word in line), "tools")


def used(folder: Path) -> int:
    total = 0
    for path in folder.rglob("*"):
        with suppress(OSError):
            total += path.stat().st_size
    return total


@contextmanager
def disk_of(folder: Path) -> Iterator[Path | None]:
    """A small file system on a folder; None without the rights."""
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(folder)], capture_output=True, check=False
    )
    try:
        yield None if mounted.returncode else folder
    finally:
        if not mounted.returncode:
            subprocess.run(["umount", "-l", str(folder)], check=False)


def soaked(arguments: argparse.Namespace) -> Soak:
    """Run it, and leave nothing running."""
    rng, provider = random.Random(arguments.seed), FaultyProvider()
    with ExitStack() as opened:
        scratch = Path(opened.enter_context(tempfile.TemporaryDirectory(prefix="soak-")))
        runs, caches = scratch / "runs", scratch / "cache"
        runs.mkdir()
        shutil.copytree(cache_folder(), caches / "kernel-evo")
        disk = opened.enter_context(disk_of(runs))
        os.environ["XDG_CACHE_HOME"] = str(caches)
        os.environ.setdefault("OPENAI_API_KEY", "none")
        url = opened.enter_context(provider.serving())
        options = ["--ray"] if arguments.ray else []
        command = ["run", *arguments.operators, "--budget", f"{60 * arguments.minutes:g}s", "--runs", str(runs)]
        command += ["--seed", str(arguments.seed), "--llm", MODEL, "--set", f"llm.api_base={url}", *options]
        soak = Soak(command, options, runs, caches / "kernel-evo", disk, provider, rng)
        try:
            named = [f for f in FAULTS if any(part in f.name for part in arguments.faults)]
            return _through(soak, [f for f in named if arguments.ray or not f.ray], arguments.every)
        finally:
            soak.process.kill()
            soak.process.wait()


def _through(soak: Soak, faults: list[Fault], every_s: float) -> Soak:
    """One fault after the other until the run is over."""
    first = soak.await_progress(0, 120.0)
    assert first is not None and soak.balance, "the search does not begin"
    order: list[Fault] = []
    while soak.process.poll() is None:
        until = time.monotonic() + soak.rng.uniform(0.5, 1.5) * every_s
        while time.monotonic() < until and soak.process.poll() is None:
            soak.below = descendants(soak.process.pid) or soak.below
            soak.sample()
            time.sleep(0.5)
        if soak.process.poll() is not None:
            break
        order = order or soak.rng.sample(faults, len(faults))
        for _ in range(20):  # until there is a compiler to be killed, for one
            if soak.befall(order[-1]) or soak.process.poll() is not None:
                break
            time.sleep(0.2)
        else:
            soak.lines.append((order[-1].name, "found nothing to befall", None))
        order.pop()
    if not soak.lines or not soak.lines[-1][1].startswith("rc 0"):
        soak.lines.append(("(none)", soak.ended(), None))
    soak.balance.look()
    soak.counts["rows_lost"] = sum(soak.balance.lost.values())
    soak.counts["judged_twice"] = soak.balance.judged_twice()
    answers = soak.provider.balance(soak.balance.folder, soak.ended_at[:-1])
    soak.counts.update(answers)
    left = [path for path in (soak.balance.folder / BUILD_FOLDER, *soak.cache.glob("tmp*")) if path.exists()]
    soak.counts["files_left"] = len(left)
    for path in left:
        print(f"left: {path}", file=sys.stderr)
    soak.counts["individuals"] = soak.balance.look()["tells"]
    undone = "select count(*) as n from tells where status = 'unavailable' and kernel_id is not null"
    soak.counts["undone"] = query(soak.balance.folder, undone).to_pylist()[0]["n"]
    naive = "select count(*) as n from events where kind = 'task_failed'"
    soak.counts["tasks_left_alone"] = query(soak.balance.folder, naive).to_pylist()[0]["n"]
    return soak


def show(soak: Soak) -> None:
    """The tables."""
    print("| fault | what happened | seconds until it went on |\n|---|---|---|")
    for name, came, took in soak.lines:
        print(f"| {name} | {came} | {'' if took is None else f'{took:.1f}'} |")
    print(f"\nmust be zero: {json.dumps({name: soak.counts[name] for name in MUST_BE_ZERO})}")
    print(f"also: {json.dumps({k: v for k, v in sorted(soak.counts.items()) if k not in MUST_BE_ZERO})}")
    end = max(at for at, *_ in soak.samples)
    quarters: dict[str, list[list[tuple[float, int]]]] = defaultdict(lambda: [[], [], [], []])
    for at, kind, mib, files in soak.samples:
        quarters[kind][min(int(4 * (at - soak.began) / (end - soak.began)), 3)].append((mib, files))
    print("\n| process | MiB, by quarter of the time (median) | most | descriptors | most |\n|---|---|---|---|---|")
    for kind, parts in sorted(quarters.items()):
        shown = " | ".join(over_time([[float(each[i]) for each in part] for part in parts]) for i in (0, 1))
        print(f"| {kind} | {shown} |")
    print("\n| s | individuals | database, bytes per individual | cache, MiB | build/, MiB |\n|---|---|---|---|---|")
    for at, told, database, cache, build in soak.sizes[:: max(len(soak.sizes) // 8, 1)]:
        each = f"{database / told:.0f}" if told else ""
        print(f"| {at - soak.began:.0f} | {told} | {each} | {cache / 2**20:.1f} | {build / 2**20:.1f} |")


def over_time(parts: list[list[float]]) -> str:
    """Medians of parts, and the most of all."""
    medians = ", ".join(f"{median(part):.0f}" if part else "-" for part in parts)
    return f"{medians} | {max(value for part in parts for value in part):.0f}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10.0, help="the run's time limit")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--every", type=float, default=15.0, help="seconds between two faults, on average")
    parser.add_argument("--faults", nargs="+", default=[""], help="only those whose names have one of these parts")
    parser.add_argument("--ray", action="store_true")
    parser.add_argument("--operators", nargs="+", default=list(OPERATORS))
    soak = soaked(parser.parse_args())
    show(soak)
    return int(any(soak.counts[name] for name in MUST_BE_ZERO))


if __name__ == "__main__":
    sys.exit(main())
