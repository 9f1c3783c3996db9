"""Ends of a session besides its budget: full disks, changed operators, other machines, folders that are gone."""

from __future__ import annotations

import errno
import os
import re
import resource
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn, cast

import duckdb
import pytest
import torch

from evo import budget, compatibility, folders, session, version
from evo.compatibility import Conditions, check_same
from evo.config import RunConfig
from evo.search.driver import Search
from evo.search.history import History
from evo.store import query
from evo.workers.pool import ClusterLost, EngineError, value_of
from evo.workers.worker import answered
from fitness.judging.device import KilledFromOutside
from fitness.sandbox.native import ToolchainError
from fitness.targets import GpuModels
from fitness.testing import ScriptedFitness, scripted
from mutators.registry import MUTATORS
from operators import extension
from operators.errors import DiskError, MachineError, UserError
from operators.kernel import Kernel
from tests.choosing import some_slow
from tests.evo.test_cli import evo
from tests.inline import InlinePool

AXPB = Path(__file__).parents[1] / "data" / "axpb"
FULL = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
Evo = Callable[..., tuple[int, str, str]]


@pytest.fixture
def operator(tmp_path: Path) -> Path:
    return Path(shutil.copytree(AXPB, tmp_path / "my op", ignore=shutil.ignore_patterns("__pycache__")))


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> Evo:
    """`evo` in this process, with fitness stages that are scripted."""
    monkeypatch.setenv("EVO_RUNS", str(tmp_path / "runs"))
    monkeypatch.setattr(session.LocalBackend, "pool", lambda _, config, *__: InlinePool(dict(scripted(config.tasks()))))
    monkeypatch.setattr("operators.catalog._read", session_reader())
    return lambda *arguments: evo(monkeypatch, capsys, *arguments)


def session_reader() -> Callable[[Path], Any]:
    """A reader that reads a folder anew every time, as a process of its own would."""
    from operators.definition.reading import read_operator

    return read_operator


@pytest.fixture
def run(command: Evo, operator: Path, tmp_path: Path) -> Path:
    assert command("run", str(operator), "--budget", "6evals")[0] == 0
    (folder,) = (tmp_path / "runs").iterdir()
    return folder


def told(folder: Path) -> int:
    (row,) = query(folder, "select count(*) as n from tells").to_pylist()
    return int(row["n"])


def one_line(result: tuple[int, str, str], code: int, *words: str) -> str:
    found, out, err = result
    lines = [line for line in err.strip().splitlines() if not re.match(r"run |\d+ s, ", line)]  # or how it gets on
    assert (found, out, len(lines)) == (code, "", 1), (found, out, err)
    assert all(word in lines[0] for word in words), lines[0]
    return lines[0]


# --- disks ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def file_size() -> Iterator[Callable[[int], None]]:
    """Limits the size of files, so that writing fails as it does on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)

    def limit(size: int) -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))

    yield limit
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.slow
def test_a_disk_that_takes_no_more_rows_ends_the_run_and_loses_nothing(
    command: Evo, operator: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file_size: Callable[[int], None]
) -> None:
    count = History._count

    def fill(history: History, state: Any, individual: Any) -> Any:
        heard = count(history, state, individual)
        if state.told == 5:
            (log,) = (tmp_path / "runs").glob("*/evo.duckdb.wal")
            file_size(log.stat().st_size)
        return heard

    monkeypatch.setattr(budget, "ROOM_S", 0.0)
    with monkeypatch.context() as patch:
        patch.setattr(History, "_count", fill)
        result = command("run", str(operator), "--budget", "1000evals")
    file_size(resource.getrlimit(resource.RLIMIT_FSIZE)[1])
    (folder,) = (tmp_path / "runs").iterdir()
    line = one_line(result, 1, "File too large", f"evo resume {folder}")
    assert told(folder) == int(re.findall(r"(\d+) finished requests", line)[0]) >= 5
    assert not (folder / "build").exists()
    assert command("resume", str(folder), "--budget", "12evals")[0] == 0
    (row,) = query(
        folder, "select count(*) as n from asks where request_id not in (select request_id from tells)"
    ).to_pylist()
    assert row["n"] == 0


@pytest.mark.slow
def test_a_disk_that_is_full_for_a_while_is_waited_for_and_nothing_is_lost(
    command: Evo, operator: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file_size: Callable[[int], None]
) -> None:
    count, waits, asked = History._count, budget.Patience.waits, []

    def fill(history: History, state: Any, individual: Any) -> Any:
        heard = count(history, state, individual)
        if state.told == 5:
            (log,) = (tmp_path / "runs").glob("*/evo.duckdb.wal")
            file_size(log.stat().st_size)
        return heard

    def look(patience: budget.Patience, reason: str, waited_s: float) -> bool:
        asked.append(reason)
        if len(asked) == 3:
            file_size(resource.getrlimit(resource.RLIMIT_FSIZE)[1])
        return waits(patience, reason, waited_s)

    monkeypatch.setattr(History, "_count", fill)
    monkeypatch.setattr(budget.Patience, "waits", look)
    monkeypatch.setattr("evo.store.writer.LOOK_FOR_ROOM_S", 0.01)
    code, _, err = command("run", str(operator), "--budget", "12evals")
    assert code == 0 and len(asked) >= 3
    assert err.count("File too large; the search waits for that to end, 60 minutes at most") == 1
    (folder,) = (tmp_path / "runs").iterdir()
    (row,) = query(folder, "select count(*) as n from asks anti join tells using (request_id)").to_pylist()
    (event,) = query(folder, "select * from events where kind = 'waits'").to_pylist()
    assert row["n"] == 0 and told(folder) >= 12 and "File too large" in event["detail_json"]


def test_a_stop_does_not_wait_for_a_disk() -> None:
    said: list[str] = []
    patience = budget.Patience(budget.RunClock(lambda: 0.0), said.append, said.append)
    assert patience.waits("full", 0.0) and patience.waits("full", 5.0)
    assert not patience.waits("full", budget.ROOM_S)
    assert said == ["full; the search waits for that to end, 60 minutes at most", "full"]
    patience.over = True
    assert not patience.waits("full", 0.0)
    spent = budget.Patience(budget.RunClock(lambda: 9.0, limit_s=5.0, began=0.0), said.append, said.append)
    assert not spent.waits("full", 0.0)


def test_a_disk_that_takes_no_build_is_not_the_kernels_fault(
    command: Evo, operator: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    build, built = ScriptedFitness.build, []

    def fail(stage: ScriptedFitness, kernel: Kernel) -> Any:
        built.append(kernel)
        if len(built) == 4:
            raise DiskError("/somewhere/build: the compiler cannot write there: No space left on device")
        return build(stage, kernel)

    monkeypatch.setattr(ScriptedFitness, "build", fail)
    monkeypatch.setattr(budget, "ROOM_S", 0.0)
    result = command("run", str(operator), "--budget", "1000evals")
    one_line(result, 1, "/somewhere/build", "see to that disk", "evo resume")
    (folder,) = (tmp_path / "runs").iterdir()
    assert query(folder, "select * from evaluations where kernel_id = '" + built[3].id + "'").num_rows == 0


def test_a_disk_that_takes_no_configuration_leaves_no_run(
    command: Evo, operator: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = Path.write_text

    def fail(path: Path, *arguments: Any, **options: Any) -> int:
        if path.name == folders.CONFIG:
            raise FULL
        return write(path, *arguments, **options)

    monkeypatch.setattr(Path, "write_text", fail)
    one_line(command("run", str(operator), "--budget", "9evals"), 1, "No space left on device", "nothing was begun")
    assert list((tmp_path / "runs").iterdir()) == []


def exhausted() -> None:
    torch.empty(1 << 55)


def unmapped() -> None:
    """A mutator's library that finds no memory in the process that is to work with it."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(extension, "import_module", found_unmapped)
        extension.named_class("mutator", "recombine", MUTATORS)


def found_unmapped(name: str) -> NoReturn:
    raise ImportError("_binding.abi3.so: failed to map segment from shared object", path="_binding.abi3.so")


def ended() -> None:
    subprocess.run(["false"], check=True)


@pytest.mark.parametrize(
    ("fails_with", "kind"),
    [
        (FULL, "disk"),
        (OSError(errno.EDQUOT, "Disk quota exceeded", "/elsewhere"), "disk"),
        (FileNotFoundError(errno.ENOENT, "No such file or directory", "/run/build/tmp1"), "machine"),
        (OSError(errno.EMFILE, "Too many open files"), "machine"),
        (PermissionError(errno.EACCES, "Permission denied"), "machine"),
        (MemoryError(), "machine"),
        (RuntimeError("can't start new thread"), "machine"),
        (EOFError(), "machine"),
        (exhausted, "machine"),
        (ended, "machine"),
        (ImportError("x.so: failed to map segment from shared object", path="/x.so"), "machine"),
        (unmapped, "machine"),
        (ImportError("cannot import name 'x'", path="/x.py"), "broken"),
        (ToolchainError("g++ does not run"), "machine"),
        (KilledFromOutside("its process was ended by signal 9"), "machine"),
        (ZeroDivisionError(), "broken"),
        (UserError("no such thing"), "user"),
    ],
    ids=lambda value: getattr(value, "__name__", None) or str(value) or type(value).__name__,
)
def test_a_worker_tells_its_machine_from_bugs(fails_with: Exception | Callable[[], None], kind: str) -> None:
    def fail() -> None:
        raise cast(Exception, fails_with)

    answer = answered(cast(Callable[[], None], fails_with) if callable(fails_with) else fail)
    assert answer[0] == kind
    with pytest.raises({"user": UserError, "broken": EngineError}.get(kind, MachineError)):
        value_of(answer)


@contextmanager
def backend(ray: str) -> Iterator[session.LocalBackend]:
    """In place of a cluster."""
    assert ray == session.OWN_CLUSTER
    yield session.LocalBackend()


@pytest.mark.slow
def test_a_cluster_of_its_own_that_is_lost_is_replaced_and_the_search_goes_on(
    command: Evo, operator: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    count, lose_at = History._count, [3, 6]

    def lose(history: History, state: Any, individual: Any) -> Any:
        heard = count(history, state, individual)
        if lose_at and state.told >= lose_at[0]:
            del lose_at[0]
            raise ClusterLost("Ray's raylet has ended")
        return heard

    monkeypatch.setattr(session, "backend_of", backend)
    monkeypatch.setattr(History, "_count", lose)
    code, _, err = command("run", str(operator), "--ray", "--budget", "12evals")
    assert code == 0 and err.count("Ray's raylet has ended; the search goes on with another cluster") == 2
    (folder,) = (tmp_path / "runs").iterdir()
    (row,) = query(folder, "select count(*) as n from events where kind = 'session'").to_pylist()
    assert row["n"] == 3 and told(folder) >= 12


@pytest.mark.parametrize("number", session.ENDING)
def test_a_signal_while_another_cluster_begins_ends_a_session_in_good_order(
    number: signal.Signals, command: Evo, operator: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[str] = []

    @contextmanager
    def slow(ray: str) -> Iterator[session.LocalBackend]:
        begun.append(ray)
        if len(begun) > 1:
            os.kill(os.getpid(), number)
        yield session.LocalBackend()

    async def lose(_: Search) -> str:
        raise ClusterLost("Ray's gcs_server has ended")

    before = [signal.getsignal(each) for each in session.ENDING]
    monkeypatch.setattr(session, "backend_of", slow)
    monkeypatch.setattr(Search, "run", lose)
    try:
        code, _, err = command("run", str(operator), "--ray", "--budget", "12evals")
    finally:
        for each, handler in zip(session.ENDING, before, strict=True):
            signal.signal(each, handler)
    assert code == 130 and "Traceback" not in err, err
    assert len(begun) == 2


@pytest.mark.slow
def test_a_machine_on_which_no_cluster_lives_is_one_line(
    command: Evo, operator: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = []

    async def lose(search: Search) -> str:
        started.append(search)
        raise ClusterLost("Ray's gcs_server has ended")

    monkeypatch.setattr(session, "backend_of", backend)
    monkeypatch.setattr(Search, "run", lose)
    code, out, err = command("run", str(operator), "--ray", "--budget", "12evals")
    last = err.strip().splitlines()[-1]
    assert (code, out, len(started)) == (1, "", session.FRUITLESS) and "Traceback" not in err
    assert last == "evo: Ray's gcs_server has ended; nothing was begun"


@pytest.mark.slow
def test_progress_that_cannot_be_shown_ends_no_search(
    command: Evo, operator: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("evo.report.live.LINE_EVERY_S", 0.0)
    shown = []

    def fail(*arguments: Any, **options: Any) -> None:
        shown.append(arguments)
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr("evo.report.live.Progress._show", fail)
        assert command("run", str(operator), "--budget", "6evals")[0] == 0
    assert shown


def test_a_folder_that_is_removed_meanwhile_is_one_line(
    command: Evo, operator: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    count = History._count

    def remove(history: History, state: Any, individual: Any) -> Any:
        heard = count(history, state, individual)
        if state.told == 3:
            shutil.rmtree(tmp_path / "runs")
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(search_folder / "build" / "x"))
        return heard

    (tmp_path / "runs").mkdir()
    search_folder = tmp_path / "runs" / "mine"
    monkeypatch.setattr(folders, "new_folder", lambda runs, config: search_folder.mkdir() or search_folder)
    monkeypatch.setattr(History, "_count", remove)
    one_line(command("run", str(operator), "--budget", "50evals"), 1, "folder was removed while it ran")


# --- what `last` is ---------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_it_works_where_it_is_not_installed(
    command: Evo, operator: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(name: str) -> str:
        raise version.PackageNotFoundError(name)

    monkeypatch.setattr(version, "version", missing)
    assert command("run", str(operator), "--budget", "3evals")[0] == 0
    (folder,) = (tmp_path / "runs").iterdir()
    assert query(folder, "select engine_version as v from runs").to_pylist() == [{"v": version.engine_version()}]
    assert version.engine_version().endswith("(not installed)")


@pytest.mark.slow
def test_last_is_the_search_that_began_last(
    command: Evo, operator: Path, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*arguments: Any) -> None:
        raise UserError("no key for this model")

    with monkeypatch.context() as patch:
        patch.setattr(Search, "_restore", fail)
        one_line(command("run", str(operator), "--budget", "9evals"), 2, "no key")
    assert [path.name for path in run.parent.iterdir()] == [run.name]
    assert command("replay", "last")[0] == 0
    assert command("status")[1].strip().endswith(f"run {run}")
    assert command("status", "last-replay")[1].strip().endswith(f"{run.name}-replay")
    assert command("status", run.name[:-1])[1].strip().endswith(f"run {run}"), "the beginning of an id is a search's"
    assert "the whole run, is used up; --budget sets a larger one" in command("resume", str(run))[2]
    os.utime(run / folders.CONFIG, (0, 0))
    assert command("run", str(operator), "--budget", "3evals")[0] == 0
    newer = next(path for path in run.parent.iterdir() if run.name not in path.name or path.name == f"{run.name}-2")
    assert command("status")[1].strip().endswith(f"run {newer}")
    assert command("resume", str(run), "--budget", "7evals")[0] == 0
    assert command("status")[1].strip().endswith(f"run {run}")


@pytest.mark.slow
def test_a_run_that_was_killed_before_it_began_is_shown_and_is_not_last(command: Evo, run: Path) -> None:
    killed = run.with_name("killed")
    shutil.copytree(run, killed)
    with duckdb.connect(str(killed / folders.DATABASE)) as connection:
        for table in ("runs", "events", "asks", "tells", "evaluations"):
            connection.execute(f"delete from {table}")
    code, out, err = command("status", str(killed))
    assert (code, err) == (0, "") and "nothing was asked for yet" in out
    assert command("status")[1].strip().endswith(f"run {run}")


# --- changed conditions -----------------------------------------------------------------------------------------------

CHANGES = {
    "tolerance": ("operator.toml", 'bound = "rounding"', 'bound = "measured"', "axpb: operator.toml: tolerance"),
    "hidden shapes": ("operator.toml", "[1, 3, 7,", "[2, 3, 7,", "axpb: operator.toml: hidden"),
    "reference": ("reference.py", "return abs(alpha)", "return 2 * abs(alpha)", "axpb: reference.py"),
    "naive kernel": ("naive.cpp", "load(alpha)", "load( alpha)", "axpb: naive.cpp"),
    "name": ("operator.toml", 'name = "axpb"', 'name = "other"', "it has axpb/fp32/cpu, they offer other/fp32/cpu"),
}


@pytest.mark.slow
def test_a_changed_operator_is_refused(command: Evo, operator: Path, run: Path) -> None:
    for file, old, new, words in CHANGES.values():
        text = (operator / file).read_text()
        assert old in text
        (operator / file).write_text(text.replace(old, new))
        one_line(command("resume", str(run), "--budget", "9evals"), 2, words, "restore")
        (operator / file).write_text(text)
    assert command("resume", str(run), "--budget", "9evals")[0] == 0


@pytest.mark.slow
def test_what_decides_no_verdict_may_change(command: Evo, operator: Path, run: Path) -> None:
    (operator / "README.md").write_text("Mine.")
    (operator / "naive.cu").unlink()
    toml, reference = operator / "operator.toml", operator / "reference.py"
    toml.write_text("# mine\n" + re.sub(r'formula = ".*"', 'formula = "y"', toml.read_text().replace(" = ", "  =  ")))
    reference.write_text("# mine\n\n" + reference.read_text().replace("\n", "  # here\n", 1) + "\n\n")
    code, _, err = command("resume", str(run), "--budget", "9evals")
    assert (code, err) == (0, "ended: evaluations 9 of 9\n")


@pytest.mark.slow
def test_a_kernel_file_that_a_run_did_not_begin_with_is_none_of_its_own(
    command: Evo, operator: Path, run: Path
) -> None:
    (operator / "better.cpp").write_text("// not yet")
    code, _, err = command("resume", str(run), "--budget", "9evals")
    assert (code, err) == (0, "ended: evaluations 9 of 9\n")


@pytest.mark.parametrize("file", some_slow(["naive.cpp", "reference.py", "operator.toml"], 0))
def test_a_missing_file_at_resume_is_named(command: Evo, operator: Path, run: Path, file: str) -> None:
    (operator / file).unlink()
    one_line(command("resume", str(run), "--budget", "9evals"), 2, file)


@pytest.mark.slow
def test_another_processor_is_refused(command: Evo, run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(compatibility, "processor", lambda: "Other 9000")
        one_line(command("resume", str(run), "--budget", "9evals"), 2, "here Other 9000", "start a new run")
    assert command("resume", str(run), "--budget", "9evals")[0] == 0


@pytest.mark.slow
def test_a_run_that_was_stopped_before_it_noted_its_operators_goes_on(command: Evo, run: Path) -> None:
    with duckdb.connect(str(run / folders.DATABASE)) as connection:
        connection.execute(f"delete from events where kind = '{session.DEFINITIONS}'")
    code, _, err = command("resume", str(run), "--budget", "9evals")
    note, *_, ended = err.strip().splitlines()  # a slow machine tells of its progress in between
    assert code == 0 and "stopped before it noted its operators" in note and ended.startswith("ended: ")


def made(**host: Any) -> Conditions:
    return Conditions("1.0", {"processor": "P", "cpus": 8} | host, {})


GPU = RunConfig(operators=["softmax"], target="cuda")
CPU = RunConfig(operators=["softmax"])


@pytest.mark.parametrize(
    ("config", "then", "now", "words"),
    [
        (CPU, {}, {"cpus": 4}, "a kernel had 7 threads, here 3"),
        (CPU.model_copy(update={"threads": 2}), {}, {"cpus": 4}, ""),
        (CPU, {"processor": None, "cpus": None}, {}, ""),
        (
            GPU,
            {"gpus": ["NVIDIA H100 80GB HBM3"]},
            {"gpus": ["NVIDIA H200"]},
            "NVIDIA H100 80GB HBM3, here NVIDIA H200",
        ),
        (GPU, {"gpus": ["NVIDIA H200"]}, {}, "NVIDIA H200, here none"),
        (GPU, {"gpus": ["NVIDIA H200"]}, {"gpus": ["NVIDIA H200"], "processor": "Q", "cpus": 2}, ""),
        (GPU, {"gpus": ["NVIDIA H200"]}, {"gpus": ["accelerator_type:H200"]}, ""),
        (GPU, {"gpus": ["NVIDIA H200"]}, {"gpus": ["accelerator_type:H100"]}, "here accelerator_type:H100"),
        (GPU, {}, {"gpus": ["NVIDIA H200"]}, ""),
    ],
)
def test_hardware_that_timings_depend_on(config: RunConfig, then: Any, now: Any, words: str) -> None:
    if not words:
        assert check_same(made(**then), made(**now), config, run="r") == []
        return
    with pytest.raises(UserError, match=re.escape(words)):
        check_same(made(**then), made(**now), config, run="r")


def test_gpus_of_different_models_are_refused() -> None:
    with pytest.raises(UserError, match=r"different models .H100, H200.*CUDA_VISIBLE_DEVICES"):
        compatibility.conditions(GPU, GpuModels(("accelerator_type:H100", "accelerator_type:H200")))


def test_other_versions_are_noted() -> None:
    gpus = {"gpus": ["NVIDIA H200"]}
    then, now = ({"driver": "570.1", "torch": "2.11"}, {"driver": "580.2", "torch": "2.12", "nvmath": "1.0"})
    assert check_same(made(**gpus, versions=then), made(**gpus, versions=now), GPU, run="r") == [
        "the GPU driver is 580.2 now; the run began with 570.1", "torch is 2.12 now; the run began with 2.11"
    ]  # fmt: skip
    found = compatibility.host(GpuModels(("NVIDIA H200",), "580.2"), "cuda")
    assert found["gpus"] == gpus["gpus"]
    assert found["versions"] == {"torch": torch.__version__, "driver": "580.2"} | found["versions"]  # type: ignore[operator]
