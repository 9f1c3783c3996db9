"""Runs from Python: `import evo`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pytest

import evo
from evo.store import Store
from operators.errors import UserError
from tests.store.rows import TASK, event, run
from tests.store.story import stored, story, tables

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two runs of the same story."""
    place = tmp_path_factory.mktemp("api") / "runs"
    for name in ("20260101-000000-softmax", "20260102-000000-softmax"):
        stored(place / name, config_json='{"strategy": "islands"}')
    return place


def test_runs_are_found_by_folder_by_name_and_all_at_once(runs: Path) -> None:
    first, second = evo.runs(runs)
    assert (first.id, second.id) == ("20260101-000000-softmax", "20260102-000000-softmax")
    for name in (runs / first.id, first.id, "20260101"):
        opened = evo.open(name, runs=runs)
        assert (opened.folder, opened.is_running) == (first.folder, False)
    assert opened.tasks == [TASK] and opened.config == {"strategy": "islands"}
    with pytest.raises(UserError, match="does not exist"):
        evo.open("nothing", runs=runs)
    with pytest.raises(UserError, match="it holds none yet: evo run makes one"):
        evo.open("nothing", runs=runs / "none")
    assert evo.runs(runs / "none") == []


def test_queries_answer_in_arrow_and_bind_parameters(runs: Path) -> None:
    opened = evo.open("20260101", runs=runs)
    table = opened.sql("select kernel_id, speedup from lineage where author = $who", {"who": "ann"})
    assert isinstance(table, pa.Table) and table.column("kernel_id").to_pylist() == ["G"]
    assert opened.query("outside", operator="softmax").column("in_best").to_pylist() == [1]
    with pytest.raises(UserError, match="DELETE is no query"):
        opened.sql("delete from runs")
    with pytest.raises(UserError, match="unknown query `mutator`"):
        opened.query("mutator")
    both = evo.open_several(runs)
    assert both.sql("select distinct run from best").num_rows == 2
    assert both.query("runs").column("winner").to_pylist() == [""]
    assert evo.open_several([runs / "20260101-000000-softmax"]).sql("from best").column_names[0] == "run"


def test_data_frames_need_their_package_and_say_so(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = evo.open("20260101", runs=runs)
    monkeypatch.setattr("evo.api.find_spec", lambda name: None)
    for package in ("pandas", "polars"):
        with pytest.raises(UserError, match=f"needs the package {package}: .*pip install {package}"):
            opened.sql("from best", to=package)
    monkeypatch.setattr("evo.api.find_spec", lambda name: name)
    monkeypatch.setitem(sys.modules, "polars", SimpleNamespace(from_arrow=lambda table: ("frame", table.num_rows)))
    assert opened.sql("from best", to="polars") == ("frame", 1)
    with pytest.raises(UserError, match="unknown form `panda`; did you mean `pandas`"):
        opened.sql("from best", to="panda")


def test_a_kernel_has_all_that_the_run_holds_on_it(runs: Path) -> None:
    opened = evo.open("20260101", runs=runs)
    (best,) = opened.best()
    kernel = opened.kernel("G")
    assert best == kernel and opened.best("gelu") == []
    assert (kernel.id, kernel.task, kernel.operator, kernel.values) == ("G", TASK, "softmax", {"BLOCK": 2})
    assert kernel.plan["tune"] == {"BLOCK": [4, 2]} and "BLOCK = [2, 4]" in kernel.text
    assert kernel.verdict and (kernel.verdict.status, kernel.verdict.level) == ("correct", "screen")
    assert kernel.verdict.speedup_low < kernel.verdict.speedup < kernel.verdict.speedup_high
    (timing,) = kernel.verdict.timings
    assert (timing.workload, timing.latency_us, timing.pairs) == ("rows=8", 10.0, 20)
    assert kernel.profile and kernel.profile.values == {"dram_busy": 50.0}
    assert kernel.origin and (kernel.origin.mutator, kernel.origin.author) == ("guest", "ann")
    assert kernel.diff.splitlines()[:2] == ["--- C2", "+++ G"]
    assert [line for line in kernel.diff.splitlines() if line[:1] in "+-"][2:] == ["-// C2", "+// G"]
    wrong = opened.kernel("W")
    assert wrong.verdict and (wrong.verdict.status, wrong.verdict.speedup, wrong.profile) == ("wrong", None, None)
    assert opened.kernel("K0").diff == ""
    assert opened.kernel("C").id == "C"  # though C2 begins so
    for name, words in (("", "more than one"), ("nothing", "no kernel's id")):
        with pytest.raises(UserError, match=words):
            opened.kernel(name)
    with pytest.raises(UserError, match="belongs to no task"):
        opened.kernel("G", task="gelu")


def test_a_lineage_goes_through_both_parents_or_along_the_principal_one(runs: Path) -> None:
    opened = evo.open("20260101", runs=runs)
    assert [each.kernel_id for each in opened.lineage("G")] == ["K0", "A", "B", "C", "C2", "G"]
    principal = opened.lineage("G", principal=True)
    assert [each.kernel_id for each in principal] == ["K0", "A", "C", "C2", "G"]
    assert principal[2].parents == ("A", "B") and principal[2].model == "big"


def test_a_run_is_read_while_it_is_written_and_as_a_context_stays_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("evo.store.writer.SNAPSHOT_AGE_S", 0.0)
    count = "select count(*) as n from events"
    with Store(tmp_path, create=True) as store:
        store.commit({"runs": [run()], "events": [event("a")]}).result()
        opened = evo.open(tmp_path)
        assert opened.is_running and opened.best() == []
        with opened as kept:
            assert kept.sql(count).to_pylist() == [{"n": 1}]
            store.commit({"events": [event("b")]}).result()
            assert kept.sql(count).to_pylist() == [{"n": 1}]
            assert evo.open(tmp_path).sql(count).to_pylist() == [{"n": 2}]
            with pytest.raises(UserError, match="in a `with` already"), kept:
                pass
        assert opened.sql(count).to_pylist() == [{"n": 2}]
    assert not opened.is_running
    Store(tmp_path, create=False).close()  # nothing holds the file
    opened.sql(count)
    with Store(tmp_path, create=False) as store:
        store.commit(tables(story())).result()
        assert [kernel.id for kernel in opened.best()] == ["G"]


@pytest.mark.slow
def test_importing_it_imports_next_to_nothing_and_hides_no_function() -> None:
    heavy = ("duckdb", "pyarrow", "numpy", "pydantic", "typer", "ray", "torch")
    program = f"import sys, evo; print(*(m for m in {heavy} if m in sys.modules))"
    program += "; import evo.cli.commands, evo.session, evo.api; print(callable(evo.runs), callable(evo.open))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.splitlines() == ["", "True True"]
    assert (ROOT / "evo" / "py.typed").exists()
