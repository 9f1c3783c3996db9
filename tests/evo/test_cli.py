"""The command line, in process: exit codes, one-line errors, JSON."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from evo.api import StoredKernel
from evo.cli import commands
from evo.cli.outside import login
from evo.config import STRATEGIES, RunConfig
from evo.store import query
from operators.catalog import load
from operators.kernel import Kernel

PROGRAMS = """
    select (select count(distinct coalesce(code_digest, kernel_id)) from evaluations
            where is_verdict and status <> 'duplicate') as fresh,
           (select count(*) from evaluations where status = 'duplicate') as known
"""


def evo(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    """Exit code, stdout, stderr."""
    monkeypatch.setattr("sys.argv", ["evo", *arguments])
    monkeypatch.setattr("__main__.__package__", None)  # else click names the program after pytest's module
    try:
        commands.main()
        code = 0
    except SystemExit as stop:
        code = int(stop.code or 0)
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_ctrl_c_while_the_commands_are_imported_leaves_no_traceback() -> None:
    code = """
import sys, types, evo.cli
def find_spec(name, *rest):
    if name == "evo.cli.commands":
        raise KeyboardInterrupt
sys.meta_path.insert(0, types.SimpleNamespace(find_spec=find_spec))
evo.cli.main()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("run", "sofmax"), "did you mean `softmax`?"),
        (("run", "softmax", "--budget", "ten"), "such as 60s"),
        (("run",), "`evo operators` lists them"),
        (("run", "--family", "quantum"), "no operator of family quantum; there are activation"),
        (("operators", "softmax", "--target", "tpu"), "target tpu: there are cpu, cuda"),
        (("run", "softmax", "--set", "num_island=3"), "num_island"),
        (("status", "nothing"), "does not exist"),
        (("resume", "nothing"), "does not exist"),
        (("status", ""), "the name of a run is empty"),
        (("sql", "", "select 1"), "the name of a run is empty"),
        (("evaluate", "softmax", "nowhere.cpp"), "nowhere.cpp: cannot be read: No such file"),
        (("evaluate", "softmax", "kernel.txt"), "say --target"),
        (("evaluate", "sofmax", "kernel.cpp"), "did you mean `softmax`?"),
        (("operators", "sofmax"), "did you mean `softmax`?"),
        (("operators", "--family", "quantum"), "no operator of family quantum"),
        (("run", "softmax", "--workers", "0"), "'--workers'"),
        (("run", "softmax", "--wrong"), "`evo run --help` says what there is"),
        (("run", "softmax", "--budget"), "`evo run --help` says what there is"),
        (("run", "softmax", "--target", "gpu"), "did you mean `cpu`? Allowed are cpu, cuda"),
        (("run", "softmax", "--budget", "0s"), "--budget 0s: more than 0"),
        (("run", "softmax", "--llm", "cli/no-such-program"), "no such program can be run here"),
        (("run", "softmax", "--notify", "ftp://x"), "--notify ftp://x: notices go to an address of http or https"),
        (("run", "softmax", "--notify", "no-such-command x"), "no such command"),
        (("run", "softmax", "--ray-address", "nowhere"), "--ray-address nowhere: write HOST:PORT"),
        (("run", "softmax", "--ray-address", ""), "--ray-address : write HOST:PORT"),
        (("run", "softmax", "--ray-address", "localhost:99999"), "write HOST:PORT"),
        (("run", "operator.toml"), "operator.toml"),
        (("check", "softmax", "--limit", "soon"), "--limit soon: write a number and a unit"),
        (("resume", str(Path(__file__).parent)), "so that it is no run"),
        (("import",), "Missing argument 'SOURCE'"),
        (("run", "nowhere.py"), "nowhere.py: no such file or folder; evo import takes a KernelBench file"),
        (
            ("run", "layers.py:block"),
            "make an operator of it first: evo import layers.py:block --inputs layers.py:NAME",
        ),
        (("run", "softmax", "--strategy", "evo.individual:Individual"), "the class has no ask, tell; begin with"),
        (("package", "softmax", "naive", "new"), "naive: operator softmax has naive.cu and naive.cpp: say --target"),
        (("package", "softmax", "best", "new"), "unknown kernel `best`; allowed are champions/h200, "),
        (("report", "--out", "page.md"), "--out page.md: a report is a page of HTML; name a file that ends in .html"),
        (("sql", "last", "select 1", "--out", "x.xlsx"), "--out x.xlsx: unknown ending `xlsx`; allowed are"),
        (("sql", str(Path(__file__)), "select 1"), "test_cli.py: it is no run and no database; name a run"),
    ],
)
def test_what_the_user_can_cure_is_one_line_and_exit_code_2(
    arguments: tuple[str, ...], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.setenv("EVO_RUNS", str(tmp_path))
    code, out, err = evo(monkeypatch, capsys, *arguments)
    assert code == 2
    assert out == ""
    assert words in err
    assert len(err.splitlines()) == 1 and err.startswith("evo: ")
    assert not [*tmp_path.iterdir()], "a run that cannot begin leaves no folder"


@pytest.mark.parametrize(
    ("reference", "words"),
    [
        ("def referenz(x): ...\n", "`def reference(...)` is missing"),
        ("def reference(x:\n", "not valid Python: line 1"),
    ],
)
def test_a_reference_that_names_nothing_is_told_before_a_run_has_a_folder(
    reference: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    folder = tmp_path / "softmax"
    shutil.copytree(load("softmax").folder, folder)
    (folder / "reference.py").write_text(reference)
    code, out, err = evo(monkeypatch, capsys, "run", str(folder), "--runs", str(tmp_path / "runs"))
    assert (code, out) == (2, "")
    assert err.startswith(f"evo: {folder}/reference.py: ") and words in err and len(err.splitlines()) == 1
    assert not (tmp_path / "runs").exists()


def test_a_misspelt_key_is_told_the_nearest_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    (tmp_path / "c.toml").write_text("strategies = 5\n")
    code, _, err = evo(monkeypatch, capsys, "run", "softmax", "--config", str(tmp_path / "c.toml"))
    assert code == 2
    assert "`strategies` is not a key that exists here; did you mean `strategy`?" in err


def test_a_machine_without_the_device_is_one_line_and_exit_code_1(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.setenv("EVO_RUNS", str(tmp_path))
    code, out, err = evo(monkeypatch, capsys, "run", "softmax", "--target", "cuda")
    assert (code, out) == (1, "")
    assert "no CUDA device can be used here" in err.splitlines()[-1]
    assert "Traceback" not in err


def test_the_help_names_every_choice_and_the_defaults(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    _, out, _ = evo(monkeypatch, capsys, "run", "--help")
    words = " ".join(out.split())
    default = RunConfig(operators=["softmax"])
    assert default.budget == {"wall_s": 60}
    ours = [name for name, place in STRATEGIES.items() if place.startswith("evo.")]  # tests add others
    for expected in (*ours, *(f"{word} (default)" for word in (default.strategy, default.target, "all", "60s"))):
        assert expected in words


def test_a_run_ends_in_a_summary(run_folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    code, out, _ = evo(monkeypatch, capsys, "status", str(run_folder), "--json")
    told = json.loads(out)
    (task,) = told["tasks"]
    causes = {finding["cause"] for finding in told["health"]["findings"]}
    assert causes <= {"noise"} and code == len(causes)  # other work on the machine is told
    assert task["task"] == "axpb/fp32/cpu"
    assert task["speedup_low"] <= task["speedup"] <= task["speedup_high"]
    assert task["against_library"] > 0
    assert task["level"] == "confirmed"
    code, out, _ = evo(monkeypatch, capsys, "sql", str(run_folder), PROGRAMS, "--json")
    (seen,) = json.loads(out)
    assert seen["fresh"] >= 1  # what a busy machine leaves open is no verdict
    assert (task["candidates"], task["duplicates"]) == (seen["fresh"], seen["known"])
    code, out, _ = evo(monkeypatch, capsys, "status", str(run_folder))
    assert "axpb/fp32/cpu" in out
    assert str(run_folder) in out


def test_a_row_of_a_real_run_is_of_one_pairing(run_folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    (task,) = json.loads(evo(monkeypatch, capsys, "status", str(run_folder), "--json")[1])["tasks"]
    (best,) = json.loads(evo(monkeypatch, capsys, "best", str(run_folder), "--json")[1])
    for row in (task, best):
        assert row["baseline_us"] / row["best_us"] == pytest.approx(row["speedup"])
        assert row["library_us"] / row["best_us"] == pytest.approx(row["against_library"])
        assert row["against_library_low"] < row["against_library"] < row["against_library_high"]
    assert {name: best[name] for name in best if name in task} == {name: task[name] for name in task if name in best}
    sql = (
        "select exp(avg(log_ratio)) as speedup, exp(avg(ln(anchor_latency_us / latency_us))) as times from timings"
        " where evaluation_id = (select evaluation_id from best)"
    )
    (stored,) = json.loads(evo(monkeypatch, capsys, "sql", str(run_folder), sql, "--json")[1])
    assert stored["times"] == pytest.approx(stored["speedup"])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "words"),
    [
        (("+ load(b[i])", ""), "the naive kernel is wrong"),
        (("load(b[i])", "load(c[i])"), "the naive kernel does not compile"),
    ],
)
def test_a_naive_kernel_that_fails_is_one_line_and_exit_code_1(
    change: tuple[str, str], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    folder = shutil.copytree(Path(__file__).parents[1] / "data" / "axpb", tmp_path / "mine")
    naive = folder / "naive.cpp"
    naive.write_text(naive.read_text().replace(*change))
    options = ("--budget", "1evals", "--workers", "1", "--runs", str(tmp_path / "runs"))
    code, out, err = evo(monkeypatch, capsys, "run", str(folder), *options)
    assert code == 1
    assert "axpb/fp32/cpu" in out
    (line,) = [line for line in err.splitlines() if line.startswith("evo: axpb")]
    assert line.startswith(f"evo: axpb/fp32/cpu: {words}, ")
    command = line.split("`")[-2]
    assert command == f"evo evaluate {folder} {naive} --dtype fp32 --workloads cpu"
    assert evo(monkeypatch, capsys, *command.split()[1:])[0] == 1


def test_best_can_be_exported(run_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    file = tmp_path / "best.cpp"
    assert evo(monkeypatch, capsys, "best", str(run_folder), "--export", str(file))[0] == 0
    ((best,),) = [json.loads(evo(monkeypatch, capsys, "best", str(run_folder), "--json")[1])]
    assert Kernel("axpb", "cpu", file.read_text()).id == best["kernel_id"]
    file.write_text("mine")
    code, _, said = evo(monkeypatch, capsys, "best", str(run_folder), "--export", str(file))
    assert code == 2 and "another file is there" in said and file.read_text() == "mine"


def test_a_task_that_a_run_lacks_is_told_with_those_that_it_has(
    run_folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    code, _, said = evo(monkeypatch, capsys, "best", str(run_folder), "--task", "softmin")
    assert code == 2 and "unknown task `softmin`" in said and "axpb/fp32/cpu" in said


@pytest.mark.slow
def test_best_can_be_exported_and_judged_again(
    run_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    file = tmp_path / "best.cpp"
    assert evo(monkeypatch, capsys, "best", str(run_folder), "--export", str(file))[0] == 0
    operator = str(Path(__file__).parents[1] / "data" / "axpb")
    code, out, _ = evo(monkeypatch, capsys, "evaluate", operator, str(file), "--json")
    assert code == 0
    assert json.loads(out)[-1]["level"] == "confirmed"


def test_best_can_be_taken_away_as_a_package_once(
    run_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.chdir(tmp_path)  # as users name a folder, relative
    folder = Path("taken")
    assert evo(monkeypatch, capsys, "best", str(run_folder), "--package", str(folder))[0] == 0
    told = json.loads((folder / "verdict.json").read_text())
    assert told["verdict"]["status"] == "correct" and told["conditions"]["processor"]
    assert told["lineage"][-1]["kernel_id"] == told["kernel_id"]
    assert told["kernel_id"][:12] in (folder / "LINEAGE.md").read_text()
    code, _, said = evo(monkeypatch, capsys, "best", str(run_folder), "--package", str(folder))
    assert code == 2 and "nothing is overwritten" in said and said.count("\n") == 1


def test_a_full_disk_is_the_machines_fault_for_packages_too(
    run_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "write_text", full)
    code, _, said = evo(monkeypatch, capsys, "best", str(run_folder), "--export", str(tmp_path / "best.cpp"))
    assert code == 1 and "cannot be written: No space left on device" in said and said.count("\n") == 1


def test_commands_to_go_on_with_can_be_pasted_where_a_folder_has_a_blank(
    run_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    out = tmp_path / "two words.duckdb"
    assert f"evo sql '{out}', or" in evo(monkeypatch, capsys, "export", str(run_folder), str(out))[2]
    taken = tmp_path / "another one"
    assert (
        f"then: evo check '{taken}'; evo run '{taken}'"
        in evo(monkeypatch, capsys, "new", "tripled", "--like", "elementwise", "--out", str(taken))[1]
    )


@pytest.mark.slow
def test_a_run_starts_from_a_kernel_of_the_users_own_and_stores_when_each_level_was_reached(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    operator = Path(__file__).parents[1] / "data" / "axpb"
    mine, runs = tmp_path / "mine.cpp", tmp_path / "runs"
    source = (operator / "naive.cpp").read_text()
    mine.write_text(source)

    def started(*more: str) -> tuple[int, str, str]:
        return evo(
            monkeypatch, capsys, "run", str(operator), "--from", str(mine), "--budget", "4evals",
            "--set", "strategy=random", "--runs", str(runs), *more,
        )  # fmt: skip

    for wrong, said in (
        (source.replace("load(", "lode("), "does not compile: kernel:"),
        (source.replace("[[launch]]", "[[lunch]]"), "did you mean `launch`"),
        (source.partition("*/")[2], "there is no header"),
    ):
        mine.write_text(wrong)
        code, _, error = started()
        assert (code, error.count("\n")) == (2, 1) and said in error and "mine.cpp" in error
    mine.write_text(source)
    assert started("--dtype", "fp32", "--dtype", "fp64")[0] == 2
    assert not runs.exists()
    faster = source.replace("int phase = 0; phase < 64; phase++", "int once = 0; once < 1; once++")
    mine.write_text(faster.replace("int i = phase; i < n; i += 64", "int i = 0; i < n; i++"))
    assert started()[0] == 0
    sql = "select kernel_id, author, description, status from lineage where mutator = 'guest'"
    code, out, _ = evo(monkeypatch, capsys, "sql", "last", sql, "--json", "--runs", str(runs))
    ((guest,),) = [json.loads(out)]
    assert guest["author"] == login() and guest["description"] == "started from mine.cpp" and guest["status"]
    (run_folder,) = (path.parent for path in runs.glob("*/evo.duckdb"))
    assert_that_levels_have_the_time_when_they_were_reached(run_folder)


def assert_that_levels_have_the_time_when_they_were_reached(run_folder: Path) -> None:
    """A kernel of the run is faster than the naive one for certain, and got to the full level."""
    levels = """
        select full_.created_at as then, epoch_ms(full_.created_at) - epoch_ms(screen.created_at) as later_ms,
               coalesce(full_.verify_ms, 0) + coalesce(full_.time_ms, 0) as took_ms
        from evaluations as screen join evaluations as full_ using (request_id)
        where screen.level = 'screen' and full_.level = 'full'
    """
    found = query(run_folder, levels).to_pylist()
    assert found
    assert all(row["later_ms"] >= 0.9 * row["took_ms"] > 0 for row in found)  # clocks differ a little
    when = query(run_folder, "select created_at from progress where level = 'full'").column(0).to_pylist()
    assert {row["then"] for row in found} & set(when)  # a later one may be no better than the first


def test_a_wrong_kernel_fails_with_exit_code_1(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    operator = Path(__file__).parents[1] / "data" / "axpb"
    file = tmp_path / "wrong.cpp"
    file.write_text((operator / "naive.cpp").read_text().replace("+ load(b[i])", ""))
    code, out, _ = evo(monkeypatch, capsys, "evaluate", str(operator), str(file))
    assert code == 1
    assert "screen: wrong" in out
    assert "elements of `y` are out of bounds" in out


def test_lineage_leads_back_to_the_ancestors_and_agrees_with_best(
    run_folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    found = json.loads(evo(monkeypatch, capsys, "lineage", str(run_folder), "--json")[1])
    assert found[0]["mutator"] == "ancestor"
    known: dict[str, int] = {}
    for row in found:  # parents before children, and all of them
        assert row["generation"] == max((1 + known[parent] for parent in row["parents"]), default=0)
        known[row["kernel_id"]] = row["generation"]
    (best,) = json.loads(evo(monkeypatch, capsys, "best", str(run_folder), "--json")[1])
    assert (found[-1]["level"], found[-1]["speedup"]) == (best["level"], best["speedup"])
    chain = json.loads(evo(monkeypatch, capsys, "lineage", str(run_folder), "--principal", "--json")[1])
    assert [row["parents"][:1] for row in chain[1:]] == [[row["kernel_id"]] for row in chain[:-1]]
    assert chain[-1] == found[-1]


def test_sql_answers_and_guards(run_folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    code, out, _ = evo(monkeypatch, capsys, "sql", str(run_folder), "select count(*) as n from tells", "--json")
    assert code == 0
    assert json.loads(out)[0]["n"] >= 6
    code, _, err = evo(monkeypatch, capsys, "sql", str(run_folder), "delete from tells")
    assert code == 2
    assert len(err.strip().splitlines()) == 1


def test_a_verdict_says_on_which_cores_it_was_found(run_folder: Path) -> None:
    found = query(run_folder, "select worker, count(*) as n from evaluations where status <> 'duplicate' group by all")
    ((worker, count),) = [(row["worker"], row["n"]) for row in found.to_pylist()]
    assert worker.startswith("cores 0") and count > 1
    assert not query(run_folder, "select 1 from evaluations where status = 'duplicate' and worker is not null").num_rows


def test_no_column_of_the_same_name_is_lost(run_folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    join = (
        "select child.status, child.number, parent.number, parent.number + 7 as number_1 from lineage as child"
        " join lineage as parent on parent.kernel_id = child.parent_id where child.status <> '' order by child.number"
    )
    rows = json.loads(evo(monkeypatch, capsys, "sql", str(run_folder), join, "--json")[1])
    assert [list(row) for row in rows] == [["status", "number", "number_2", "number_1"]] * len(rows)
    assert rows and all(row["number_1"] == row["number_2"] + 7 and row["number"] > row["number_2"] for row in rows)
    text = evo(monkeypatch, capsys, "sql", str(run_folder), join)[1]
    assert text.split()[:4] == ["status", "number", "number_2", "number_1"]
    assert text.splitlines()[1].split() == [str(value) for value in rows[0].values()]


def test_json_is_valid_whatever_is_in_it(run_folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    asked = """select 'nan'::double as a, [1.5, '-inf'::double] as b, {'x': 'inf'::float} as c,
        map {'k': 'nan'::double} as d, 12.50::decimal(9, 2) as e, sum(3) as f,
        date '2026-01-02' as g, 'ab'::blob as h, interval 90 second as i,
        timestamptz '2026-01-02 03:04:05+00' as j, uuid '00000000-0000-0000-0000-000000000001' as k"""

    def refuse(word: str) -> None:
        raise AssertionError(word)

    out = evo(monkeypatch, capsys, "sql", str(run_folder), asked, "--json")[1]
    (row,) = json.loads(out, parse_constant=refuse)
    times = {name: row.pop(name) for name in ("g", "j")}
    assert row == {
        "a": None, "b": [1.5, None], "c": {"x": None}, "d": [["k", None]], "e": 12.5, "f": 3, "h": "6162",
        "i": [0, 0, 90 * 10**9], "k": "00000000-0000-0000-0000-000000000001",
    }  # fmt: skip
    assert times["g"] == "2026-01-02" and times["j"].startswith("2026-01-0")


HOSTILE = "\x1b]0;owned\x07\x1b[2J\x9b31m\x00\r\u202e\u2066x"


@pytest.mark.parametrize("options", [(), ("--json",)])
@pytest.mark.parametrize(
    "asked",
    [
        f"select '{HOSTILE[:-1].replace(chr(0), '')}' || chr(0) as found",
        f'select 1 as "{HOSTILE.replace(chr(0), "")}"',
        f"select ['{HOSTILE.replace(chr(0), '')}', 'b'] as list",
        f"select {HOSTILE.replace(chr(0), '')}",
    ],
)
def test_nothing_that_a_terminal_obeys_leaves(
    run_folder: Path, asked: str, options: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    _, out, err = evo(monkeypatch, capsys, "sql", str(run_folder), asked, *options)
    assert out + err
    assert not set(HOSTILE[:-1]) - set("]0;owned[2J31m") & set(out + err)


def test_a_kernel_is_exported_to_the_letter_and_shown_harmlessly(
    run_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    source = f"// {HOSTILE}\nvoid f() {{}}\n"
    kernel = StoredKernel("t", "k" * 32, "softmax", "cpu", source, {}, None, None, None, "")
    monkeypatch.setattr("evo.api.Run.best", lambda run, task: [kernel])
    evo(monkeypatch, capsys, "best", str(run_folder), "--export", str(tmp_path / "k.cpp"))
    assert (tmp_path / "k.cpp").read_bytes().decode() == source
    assert source in evo(monkeypatch, capsys, "best", str(run_folder), "--show")[1]  # a pipe
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    shown = evo(monkeypatch, capsys, "best", str(run_folder), "--show")[1]
    assert "\\x1b]0;owned\\x07" in shown and "\x1b" not in shown and "void f() {}" in shown


def test_tracebacks_are_harmless_too(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    def fail(words: Any) -> None:
        raise RuntimeError(HOSTILE)

    monkeypatch.setattr(commands, "_narrowed", fail)
    code, _, err = evo(monkeypatch, capsys)
    assert code == 1
    assert "Traceback" in err and "\\x1b]0;owned" in err and "\x1b" not in err


@pytest.mark.parametrize(
    "asked",
    [
        "with recursive t(x) as (select 1 union all select x + 1 from t) select count(*) from t",
        "select count(*) from range(1_000_000_000_000)",
        "select count(*) from range(10_000_000) a, range(10_000_000) b where a.range * b.range % 7 = 8",
    ],
)
def test_a_query_without_end_ends_in_one_line(
    asked: str, run_folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    code, out, err = evo(monkeypatch, capsys, "sql", str(run_folder), asked, "--timeout", "0.1")
    assert (code, out) == (2, "")
    assert err == "evo: the query did not end within 0.1 s; simplify it, or allow more time\n"


def test_rows_that_are_left_out_are_said(run_folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    asked = ("sql", str(run_folder), "from range(1_000_000_000_000)", "--json")
    _, out, err = evo(monkeypatch, capsys, *asked)
    assert len(json.loads(out)) == 10_000
    assert err == "evo: there are more rows than these 10000; add LIMIT, aggregate, or say --rows\n"
    _, out, err = evo(monkeypatch, capsys, "sql", str(run_folder), "from range(3)", "--json", "--rows", "3")
    assert (len(json.loads(out)), err) == (3, "")


def test_operators_are_listed_and_shown(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    _, out, _ = evo(monkeypatch, capsys, "operators", "--json")
    assert {"softmax", "matrix_mul", "spmv_csr"} <= {row["operator"] for row in json.loads(out)}
    _, out, _ = evo(monkeypatch, capsys, "operators", "softmax")
    assert "rows=768,cols=1024" in out
    assert "memory" in out
    _, out, _ = evo(monkeypatch, capsys, "operators", "matrix_mul", "--target", "cpu", "--json")
    shown = json.loads(out)
    assert shown["formula"].startswith("c[i, j]")
    sizes = {row["workload"]: row["roofline"]["fp32"] for row in shown["workloads"] if row["set"] == "cpu"}
    square = sizes["m=192,n=192,k=192"]
    assert square["bytes"] == 3 * 4 * 192**2
    assert square["flops"] == 2 * 192**3
    assert square["us"] > 0
    _, out, _ = evo(monkeypatch, capsys, "operators", "--family", "loss", "--json")
    assert {row["operator"] for row in json.loads(out)} == {"cross_entropy_loss", "hinge_loss", "mse_loss"}


def test_the_doctor_finds_this_machine_fit(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    code, out, _ = evo(monkeypatch, capsys, "doctor", "--json")
    findings = {row["check"]: row for row in json.loads(out)}
    assert code == 0, findings
    assert findings["compiler"]["state"] == "ok"
    assert all(row["cure"] for row in findings.values() if row["state"] != "ok")
