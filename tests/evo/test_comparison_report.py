"""The report of a comparison: its numbers are the answers of its queries, and nothing in it is more than text."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import io
import json
import math
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from evo.charts.drawing import SERIES
from evo.charts.drawing import style as style_sheet
from evo.compare.cells import CellState, stored
from evo.compare.conclusions import conclusions
from evo.compare.config import read_comparison
from evo.compare.inference import ArmVerdict
from evo.compare.judgement import FOLDER, judged_cells
from evo.compare.leaks import Leak
from evo.compare.running import prepare
from evo.folders import find_runs
from evo.report.comparison.data import ComparisonMaterial, material
from evo.report.comparison.report import document, notices, verdict, write, write_report
from evo.report.document import Document, Section, Table, Words, text
from evo.report.output import as_json
from evo.report.render import escaped, html, markdown
from evo.store import open_readers
from fitness.evaluation import Status
from fitness.testing import by_digest
from mutators.llm.settings import LlmSettings
from operators.definition.spec import Operator
from operators.kernel import Kernel
from tests.evo.browser import CHROMIUM
from tests.evo.comparisons import ScriptedBackend, comparison, judge_on, run, serving
from tests.evo.model_runs import FENCE, another, chance_of, source_in
from tests.evo.pages import Page, Seen
from tests.evo.test_cli import evo
from tests.evo.test_judgement import Judging
from tests.mutators.llm_server import Reply

OPERATORS = ["softmax", "mse_loss", "dot_product", "matrix_copy", "prefix_sum", "gelu"]
"""Operators of six families: as many as one arm beside the reference needs to be told from it."""
HOSTILE = '</code></pre></script><script>document.title = "pwned"</script><img src=x onerror=alert(1)> | `@all`'


@dataclass(frozen=True)
class Reported:
    """A comparison with its report."""

    folder: Path
    out: Path
    page: Page
    text: str
    seen: ComparisonMaterial


def hostile(request: Mapping[str, Any], number: int) -> Reply:
    prompts = [m["content"] for m in request["messages"] if m["role"] == "user"]
    source = next(filter(None, map(source_in, reversed(prompts))))
    chance = chance_of(request)
    return Reply(f"CHANGE: idea {chance} {HOSTILE}\n\n{FENCE}{source}\n{another(str(chance))} // {HOSTILE}\n```")


def models_win(kernel: Kernel) -> Status | float:
    """Verdicts of the searches: a model's kernels are the fastest of their task, whatever the others are."""
    return 2.0 if HOSTILE in kernel.source else by_digest(kernel)


@pytest.fixture(scope="module")
def reported(tmp_path_factory: pytest.TempPathFactory) -> Reported:
    with serving(hostile) as server:
        arms: dict[str, Any] = {"random": {"models": []}, "loop": {"strategy": "refine", "settings": {"n": 9}}}
        made = comparison(server.url, arms=arms, operators=OPERATORS, budget={"evaluations": 3})
        folder = run(tmp_path_factory.mktemp("reported"), made, backend=ScriptedBackend(models_win))[0]
    judge_on(Judging(Judged()), folder, lambda _: None)
    seen, out = material(folder), folder.parent / "report"
    write(seen, out)
    text = (out / "report.html").read_text(encoding="utf-8")
    return Reported(folder, out, Page(text), text, seen)


class Judged:
    """The model's winners are fast, one of them wrong; the others slower than naive, one wrong at second sight."""

    def __init__(self) -> None:
        self.seen: set[str] = set()

    def __call__(self, operator: Operator, kernel: Kernel) -> Status | float:
        again, name = kernel.id in self.seen, operator.name
        self.seen.add(kernel.id)
        if HOSTILE in kernel.source:
            return Status.WRONG if name == "gelu" else 1.0 + 0.01 * len(name)
        return Status.WRONG if name == "mse_loss" and again else -0.1 - 0.01 * len(name)


def asked(folder: Path, command: str) -> str:
    """The query of a printed command."""
    found = re.fullmatch(r"evo sql '?(.*?)'? \"\$\(cat <<'SQL'\n(.*)\nSQL\n\)\"", command, re.DOTALL)
    assert found and found[1] == f"{folder}/**"
    return found[2]


@pytest.fixture(scope="module")
def answers(reported: Reported) -> Mapping[str, list[dict[str, Any]]]:
    """The answers of runs to all printed queries, by the command."""
    commands = {command for table in reported.page.tables for command in table.commands if command.startswith("evo")}
    found = {}
    with open_readers(find_runs(Path("runs"), f"{reported.folder}/**")) as runs:
        for command in commands:
            runs.define(query := asked(reported.folder, command))
            rows = runs.connection.sql(query).to_arrow_table().to_pylist()
            found[command] = json.loads(as_json(rows))
    return found


def same(shown: Any, known: Any) -> bool:
    if isinstance(shown, float) and isinstance(known, float | int):
        return math.isclose(shown, known, rel_tol=1e-12)
    return bool(shown == known)


@pytest.mark.slow
def test_every_number_of_a_table_is_the_answer_to_the_query_below_it(
    reported: Reported, answers: Mapping[str, list[dict[str, Any]]]
) -> None:
    tables = [table for table in reported.page.tables if any(of == "query" for _, of in table.columns)]
    assert len(tables) >= 20
    for table in tables:
        rows = answers[table.commands[0]]
        left = iter(rows)  # a part of what is longer, in its order
        for row in table.values("query"):
            assert any(all(same(row[name], other[name]) for name in row) for other in left), (table.caption, row)
        if not re.search("eighth|Workload by|Winners at", table.caption):
            assert len(rows) == len(table.rows), table.caption


@pytest.mark.slow
def test_a_printed_command_can_be_given_to_a_shell_as_it_is(reported: Reported) -> None:
    command = table_of(reported, "Arms beside random").commands[0]
    evo = f'evo() {{ {sys.executable} -m evo.cli "$@" --json; }}'
    done = subprocess.run(["bash", "-c", f"{evo}\n{command}"], capture_output=True, text=True, check=True)
    (row,) = json.loads(done.stdout)
    (shown,) = table_of(reported, "Arms beside random").values("query")
    assert all(same(row[name], value) for name, value in shown.items())


@pytest.mark.slow
def test_statistics_are_what_the_program_below_them_works_out_and_what_the_comparison_concludes(
    reported: Reported,
) -> None:
    beside, arms, line = (
        table_of(reported, name) for name in ("Arms beside", "Arms by themselves", "Best so far by evaluations")
    )
    known = conclusions(stored(reported.folder), judged_cells(reported.folder))
    assert beside.commands[1] == arms.commands[1] and executed(arms.commands[1])["found"] == known
    (effect,), (row,) = known.effects, beside.both()
    assert row["verdict"] == str(effect.verdict) == "faster" and row["p"] == effect.p == 2 / 2**6
    logs = (effect.log_ratio, effect.searched, effect.low, effect.high, effect.detectable)
    assert [row[name] for name in ("ratio", "searched", "low", "high", "seen_from")] == close(map(math.exp, logs))
    logs = (effect.median, effect.median_low, effect.median_high)
    assert [row[name] for name in ("median", "median_low", "median_high")] == close(map(math.exp, logs))
    assert (row["families"], row["found"], row["pairs"]) == (effect.families, effect.found, effect.pairs)
    summaries = {summary.arm: summary for summary in known.summaries}
    for row in arms.both():
        one = summaries[row["arm"]]
        assert [row[name] for name in ("speedup", "low", "high", "median", "with_winner", "score")] == close(
            [one.geometric_mean, one.low, one.high, one.median, one.with_winner, one.score]
        )
        assert [row[f"above_{factor}"] for factor in one.above] == close(one.above.values())
        assert [row[f"fast_{tau}"] for tau in one.fast] == close(one.fast.values())
    curves = {curve.arm: curve for curve in executed(line.commands[1])["found"] if curve.budget == "evaluations"}
    for row in line.both():
        curve = curves[row["arm"]]
        place = curve.used.tolist().index(row["used"])
        logs = (each[place] for each in (curve.log_speedup, curve.low, curve.high))
        assert [row[name] for name in ("speedup", "low", "high")] == close(map(math.exp, logs))


def close(values: Iterable[float]) -> Any:
    return pytest.approx([*values], rel=1e-12)


def executed(command: str) -> dict[str, Any]:
    """The names that a printed program leaves."""
    names: dict[str, Any] = {}
    with contextlib.redirect_stdout(io.StringIO()):
        exec(command.removeprefix("python - <<'PY'\n").removesuffix("\nPY"), names)
    return names


def table_of(reported: Reported, caption: str) -> Seen:
    return next(table for table in reported.page.tables if table.caption.startswith(caption))


@pytest.mark.slow
def test_what_candidates_and_models_wrote_is_text_and_nothing_else(reported: Reported) -> None:
    page, words = reported.page, markdown(document(reported.seen, 0.0))
    assert any(HOSTILE in code and "[[launch]]" in code for code in page.codes)  # a winner's file, to the letter
    (script,) = re.findall("<script>(.*?)</script>", reported.text, re.DOTALL)
    assert len([*page.all("script")]) == 1 and not [*page.all("img")]
    assert not [name for _, found in page.elements for name in found if name.startswith("on")]
    (policy,) = (found["content"] or "" for found in page.all("meta") if "http-equiv" in found)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert policy.startswith("default-src 'none';") and f"script-src 'sha256-{digest}'" in policy
    links = [found[name] or "" for _, found in page.elements for name in ("href", "src") if name in found]
    ids = {found["id"] for _, found in page.elements if "id" in found}
    assert links and all(link[0] == "#" and link[1:] in ids for link in links)  # nothing but the page itself
    outside = re.sub(r"^(`{3,})sh\n.*?\n\1$", "", words, flags=re.DOTALL | re.MULTILINE)
    assert "<script" not in outside and "<img" not in outside and "`@all`" not in outside
    bidi = Table("\u202e", [text("x", "x", code=True)], [{"x": HOSTILE + "\u202e\x1b"}])
    written = html(Document(HOSTILE, HOSTILE, [HOSTILE], [Section(HOSTILE, [bidi, Words(HOSTILE, [HOSTILE])])]))
    assert "\u202e" not in written and "\x1b" not in written and len([*Page(written).all("script")]) == 1
    assert escaped("- a_b *c* http://x @all\n# d") == "&#45; a_b &#42;c&#42; http&#58;//x &#64;all &#35; d"


@pytest.mark.slow
def test_markdown_and_parquet_have_the_same_numbers(reported: Reported) -> None:
    words = (reported.out / "report.md").read_text(encoding="utf-8")
    tables = {file.stem: pq.read_table(file) for file in reported.out.glob("*.parquet")}
    assert set(tables) == {"cells", "curves", "mean_curves", "times", "verdicts", "winners"}
    for shown in table_of(reported, "Arms by themselves").shown:
        assert f"| {' | '.join(map(escaped, shown))} |" in words
    rows = {row["arm"]: row for row in tables["verdicts"].to_pylist()}
    for row in table_of(reported, "Arms by themselves").both():
        own = rows[row["arm"]]
        assert [own["speedup"], own["median"]] == close([row["speedup"], row["median"]])
    assert rows["random"]["verdict"] is None and rows["loop"]["verdict"] == "faster"
    cells = {(row["task"], row["arm"], row["seed"]): row for row in table_of(reported, "Cells").values("query")}
    found = tables["cells"].to_pylist()
    assert len(found) == len(cells) == 12
    for row in found:
        shown = cells[f"{row['operator']}/{row['dtype']}/{row['target']}", row["arm"], row["seed"]]
        assert math.exp(row["judged_log_speedup"]) == pytest.approx(shown["judged_speedup"], rel=1e-12)
        assert [row[name] for name in ("evaluations", "tokens")] == [shown["evaluations"], shown["tokens"]]
    winners = tables["winners"].to_pylist()
    assert any(HOSTILE in row["source"] for row in winners)
    measured = [row for row in winners if row["verdict"] == "correct"]
    assert measured and all(row["naive_us"] == pytest.approx(1000) for row in measured)
    assert all(row["over_library"] and row["library_us"] == pytest.approx(500) for row in measured)
    refuted = [row for row in winners if row["verdict"] == "wrong"]
    assert {(row["task"].partition("/")[0], row["cells"], row["speedup"]) for row in refuted} == {
        ("gelu", "loop s1", None), ("mse_loss", "random s1", None),
    }  # fmt: skip
    beside = [row for row in measured if row["over_fastest"]]
    assert beside and all(row["cells"] == "random s1" and row["over_fastest"] < 1 for row in beside)


@pytest.mark.slow
def test_a_comparison_that_says_little_says_so(reported: Reported) -> None:
    seen = reported.seen
    assert not [*notices(seen)]
    (effect,) = seen.found.effects
    still = replace(effect, verdict=ArmVerdict.OPEN, p=0.3, detectable=math.log(1.5), high=math.inf, low=-math.inf)
    assert "not concluded, p = 0.3; a difference of 50 % would have been seen" in verdict(still)
    assert f"{effect.pairs - 1} of {effect.pairs} pairs of cells neither found" in verdict(replace(effect, found=1))
    rare = replace(effect, median=-0.1, verdict=ArmVerdict.OPEN)
    assert "a few operators weigh much: at the median one 0.905 times" in verdict(rare)
    assert verdict(replace(effect, verdict=ArmVerdict.PENDING)) == "loop: no verdict before all cells are judged."
    families = replace(seen.found, effects=[replace(still, families=2, detectable=math.inf)], families=2)
    few = replace(seen, found=replace(families, related="6 operators are of 2 families (5 dense)"))
    assert "with operators of 2 families no difference, however large" in verdict(few.found.effects[0])
    assert [notice[:24] for notice in notices(few)] == [
        "Nothing can be concluded", "Intervals, and bands of ", "6 operators are of 2 fam"
    ]  # fmt: skip
    described = replace(still, verdict=ArmVerdict.DESCRIBED, p=math.nan)
    assert "described, no verdict of it is registered; a difference of 50 % would" in verdict(described)
    assert "nan" not in verdict(described)
    begun = seen.begun.model_copy(update={"config": seen.made.model_copy(update={"primary": []})})
    assert next(notices(replace(seen, begun=begun))).startswith("It describes and concludes nothing: no arm is regis")

    def first(**changes: Any) -> str:
        return next(iter(notices(replace(seen, **changes))))

    made = seen.made.model_copy(update={"llm": LlmSettings(models=["outside/me"])})
    told = first(begun=seen.begun.model_copy(update={"config": made}))
    assert told.startswith("Demonstration: answers to loop were given from outside by people or agents")
    assert first(faults=["cell x is gone"]).endswith("no verdict below can be trusted: cell x is gone.")
    leaky = replace(seen.hermetic, leaks=[Leak("a", "b", HOSTILE)])
    assert "no verdict below can be trusted" in first(hermetic=leaky)
    (_, summary) = seen.found.summaries
    nothing = replace(seen.found, summaries=[replace(summary, with_winner=0.0)])
    assert first(found=nothing).startswith("No winner of random passed the judgement")
    failed = [replace(cell, result=replace(cell.result, standing=CellState.FAILED)) for cell in seen.cells[:1]]
    assert "1 cell is no part of any figure, and could not be searched" in first(cells=[*failed, *seen.cells[1:]])


@pytest.mark.slow
def test_an_unfinished_comparison_and_one_without_a_reference_are_rendered(
    reported: Reported, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    config, out = tmp_path / "nothing.toml", tmp_path / "out"
    config.write_text('arms = { random = {} }\noperators = ["softmax"]\nseeds = [1]\nbudget = { evaluations = 8 }\n')
    prepare(read_comparison(config), tmp_path)
    asked = ("compare", str(config), "--show", "--runs", str(tmp_path), "--report")
    code, _, told = evo(monkeypatch, capsys, *asked, str(out))
    assert code == 0 and str(out / "report.html") in told
    tables = {table.caption: table.rows for table in Page((out / "report.html").read_text(encoding="utf-8")).tables}
    assert not any(rows for caption, rows in tables.items() if caption not in ("Check hermetic", "Devices"))
    words = (out / "report.md").read_text(encoding="utf-8")
    assert "Unfinished: 1 of 1 cell not over (1 not begun)" in words and "There is one arm" in words
    code, _, told = evo(monkeypatch, capsys, *asked, str(config))
    assert code == 2 and told == f"evo: --report {config}: cannot be written: File exists; name a folder\n"
    with monkeypatch.context() as without:
        without.setattr("evo.charts.drawing.find_spec", lambda name: None)
        code, _, told = evo(monkeypatch, capsys, *asked, str(out))
    assert code == 2 and "figures of reports need vl-convert-python" in told
    folder = Path(shutil.copytree(reported.folder, tmp_path / reported.folder.name))
    shutil.rmtree(folder / FOLDER)
    for cell in folder.glob("random-*"):
        shutil.rmtree(cell)
    write_report(folder, out)
    words = (out / "report.md").read_text(encoding="utf-8")
    assert "Unfinished: 6 of 12 cells not over (6 not begun)" in words
    assert "No cell of the reference random is judged yet" in words and "not judged" in words


def luminance(colour: str) -> float:
    parts = (int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5))
    linear = [part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_words_and_lines_stand_out_in_light_and_dark() -> None:
    style = style_sheet()
    for block in re.findall(r":root \{(.*?)\}", style, re.DOTALL)[:2]:
        colours = dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", block))
        papers = [luminance(colours[name]) for name in ("paper", "panel")]
        wanted = {"ink": 7.0, "soft": 4.5, "link": 4.5} | {f"series-{place}": 3.0 for place in range(SERIES)}
        for name, least in wanted.items():
            for paper in papers:
                low, high = sorted((luminance(colours[name]), paper))
                assert (high + 0.05) / (low + 0.05) >= least, name


PROBE = """
<script>
addEventListener("load", () => {
  const wide = document.documentElement.scrollWidth > innerWidth;
  const heading = document.querySelector("thead th button");
  heading.click();
  const sorted = heading.parentNode.getAttribute("aria-sort");
  [...document.querySelectorAll(".legend")].at(-1).querySelector("button").click();
  const faded = document.querySelectorAll(".faded").length;
  const link = document.querySelector("td a[href^='#kernel-'], th a[href^='#kernel-']");
  link.click();
  setTimeout(() => {
    const open = document.getElementById(link.hash.slice(1)).open;
    document.title = JSON.stringify({wide, sorted, faded: faded > 0, open, small: innerWidth <= 520});
  });
});
</script>
"""


@pytest.mark.slow
@pytest.mark.skipif(not CHROMIUM, reason="there is no Chromium here")
def test_in_a_browser_it_fits_a_telephone_and_its_comforts_work(reported: Reported, tmp_path: Path) -> None:
    as_it_is = browsed(reported.out / "report.html", tmp_path)
    assert 'aria-pressed="false"' in as_it_is and '<th scope="col"' in as_it_is
    assert as_it_is.count(">Copy</button>") > 20  # its own script may run
    probed = tmp_path / "probed.html"
    free = re.sub('<meta http-equiv="Content-Security-Policy"[^>]*>', "", reported.text)
    probed.write_text(free.replace("</body>", f"{PROBE}</body>"), encoding="utf-8")
    (found,) = re.findall("<title>(.*?)</title>", browsed(probed, tmp_path))
    assert json.loads(found) == {"wide": False, "sorted": "ascending", "faded": True, "open": True, "small": True}


def browsed(file: Path, profile: Path) -> str:
    """The page as it stands in a browser whose window is as narrow as that of a telephone."""
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--dump-dom", "--window-size=400,800"]
    command = [str(CHROMIUM), *options, f"--user-data-dir={profile}", "--virtual-time-budget=2000", file.as_uri()]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout
