"""evo sql on the command line: worked queries, the schema, and answers in every format."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner, Result

from evo.cli.commands import app
from evo.store.named import named_queries
from operators.errors import UserError
from tests.store.story import stored


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return stored(tmp_path_factory.mktemp("runs") / "20260101-000000-softmax")


def evo(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def refusal(*arguments: object) -> str:
    error = evo(*arguments).exception
    assert isinstance(error, UserError)
    return str(error)


@pytest.mark.slow
def test_worked_queries_are_listed_and_asked_with_parameters(folder: Path) -> None:
    listed = evo("sql", "--query")
    assert listed.exit_code == 0
    assert {line.split()[0] for line in listed.output.splitlines() if line[:1].strip()} == set(named_queries())
    assert [each["name"] for each in json.loads(evo("sql", "--query", "--json").output)] == list(named_queries())
    asked = ("sql", folder, "--query", "mutators", "--json")
    assert len(json.loads(evo(*asked).output)) == 7
    assert len(json.loads(evo(*asked, "--param", "operator=softmax").output)) == 7
    assert json.loads(evo(*asked, "--param", "operator=gelu").output) == []
    own = evo("sql", folder, "select kernel_id from lineage where author = $who", "--param", "who=ann", "--json")
    assert json.loads(own.output) == [{"kernel_id": "G"}]
    assert "did you mean `mutators`" in refusal("sql", folder, "--query", "mutator")
    assert "unknown parameter `task`" in refusal("sql", folder, "--query", "mutators", "--param", "task=x")
    assert "write NAME=VALUE" in refusal("sql", folder, "--query", "mutators", "--param", "softmax")
    shown = evo("sql", "--query", "noise", "--schema").output
    assert "told_from: the ratio from which" in shown and "run" not in shown.partition("WITH")[2]
    assert "did you mean `mutators`" in refusal("sql", "--query", "mutator", "--schema")
    assert "write one SELECT after RUN, or --query NAME" in refusal("sql", folder)
    assert "write one SELECT after RUN, or --query NAME" in refusal("sql", folder, "select 1", "--query", "mutators")


def test_the_schema_lists_every_relation_without_a_run() -> None:
    text = evo("sql", "--schema").output
    relations = {relation["name"]: relation for relation in json.loads(evo("sql", "--schema", "--json").output)}
    for name, relation in relations.items():
        assert f"{'view' if relation['is_view'] else 'table'} {name}: " in text
    assert {"kernels", "evaluations", "best", "lineage", "used"} <= set(relations)
    some = json.loads(evo("sql", "best", "lineage", "--schema", "--json").output)
    assert some == [relations["best"], relations["lineage"]]
    assert evo("sql", "runs/one", "--schema").output == text  # the same for all runs


def test_a_question_loads_nothing_that_it_does_not_need(folder: Path) -> None:
    unneeded = ("numpy", "pandas", "pyarrow.parquet", "operators.catalog", "evo.config", "evo.api")
    program = f"""if True:
        import sys
        from contextlib import suppress
        from evo.cli.commands import main
        for form in ("json", "csv", "table"):
            sys.argv = ["evo", "sql", {str(folder)!r}, "select count(*) as found from kernels", "--format", form]
            with suppress(SystemExit):
                main()
            print("loaded for", form, *(name for name in {unneeded} if name in sys.modules))
    """
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.count("found") == 3
    loaded = [line for line in done.stdout.splitlines() if line.startswith("loaded for")]
    assert loaded == ["loaded for json", "loaded for csv", "loaded for table"]


ODD = """select * from (values
    (1, true, 0.1::double, 'a,"b"', [1, NULL], timestamptz '2026-01-02 03:04:05+00', NULL),
    (2, false, 'inf', e'two\\nlines', [], NULL, 'x')) t(i, b, f, s, l, t, n) order by i"""


def test_an_answer_is_the_same_in_every_format(folder: Path, tmp_path: Path) -> None:
    written = {}
    for form in ("table", "csv", "json", "parquet"):
        out = tmp_path / f"answer.{form}"
        shown = evo("sql", folder, ODD, "--out", out, *(("--format", "table") if form == "table" else ()))
        assert (shown.exit_code, shown.output) == (0, "")
        written[form] = out
    stored = pq.read_table(written["parquet"])
    assert stored.column("l").to_pylist() == [[1, None], []] and stored.column("f").to_pylist() == [0.1, float("inf")]
    first, second = csv.DictReader(io.StringIO(written["csv"].read_text()))
    assert (first["b"], first["f"], first["s"], first["l"], first["n"]) == ("true", "0.1", 'a,"b"', "[1, null]", "")
    assert (second["s"], second["t"], first["t"][:13]) == ("two\nlines", "", "2026-01-02T03")
    assert json.loads(written["json"].read_text())[0]["s"] == 'a,"b"'
    assert written["table"].read_text().splitlines()[0].split() == ["i", "b", "f", "s", "l", "t", "n"]
    assert evo("sql", folder, "select 1 as a, 'x' as b", "--format", "csv").output == "a,b\n1,x\n"


def test_no_file_is_overwritten_unless_that_is_said(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "kept.csv"
    out.write_text("mine")
    assert "exists already" in refusal("sql", folder, "select 1 as a", "--out", out)
    assert out.read_text() == "mine"
    assert evo("sql", folder, "select 1 as a", "--out", out, "--force").exit_code == 0
    assert out.read_text() == "a\n1\n"
    assert "cannot be written" in refusal("sql", folder, "select 1", "--out", tmp_path / "no" / "a.csv")
    assert "did you mean `csv`" in refusal("sql", folder, "select 1", "--format", "cvs")


def test_values_that_python_cannot_hold_are_one_clear_line(folder: Path) -> None:
    asked = "select timestamp '290000-01-01 00:00:00' as then"
    assert refusal("sql", folder, asked) == "column then holds values that cannot be shown; write then::VARCHAR"
    assert "290000" in evo("sql", folder, asked.replace(" as", "::varchar as")).output
