"""The bench of the champions, as far as no GPU is needed: slices, how far a kernel gets, what its table says."""

from __future__ import annotations

import json
import math
import shutil
from contextlib import nullcontext
from dataclasses import replace
from datetime import date
from functools import partial
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from fitness.evaluation import Level, LibraryTiming, Status, Timing
from fitness.profiling.roofline import Peaks, roofline
from fitness.testing import ScriptedFitness
from mutators.edits import AnswerError, child_source
from operators.catalog import folders, load
from operators.champions import champions, records_text, write_records
from operators.definition.spec import CHAMPIONS, Task
from operators.errors import UserError
from operators.kernel import Kernel
from tests.bench import champions as bench
from tests.bench import pieces
from tests.bench.champion_lines import lines
from tests.bench.finding import reached
from tests.store.story import stored, story

TASK = Task("softmax", "fp32", "cuda")


def test_slices_hold_every_champion_once() -> None:
    names = ["elu", "matrix_mul", "softmax"]
    every = list(bench.entries(names, ["fp32", "bf16"]))
    assert len(every) == sum(len(champions(load(name).folder)) for name in names)
    parts = [bench.share(iter(every), bench.part(f"{number}/4")) for number in (1, 2, 3, 4)]
    assert sorted(entry.key for one in parts for entry in one) == sorted(entry.key for entry in every)
    assert max(map(len, parts)) - min(map(len, parts)) <= 1
    assert [e.key[1] for e in bench.entries(["matrix_mul"], ["bf16"])] == ["bf16"]
    for text in ("0/4", "5/4", "x", "1"):
        with pytest.raises(ValueError):
            bench.part(text)


def test_files_are_judged_beside_the_champions_that_they_are_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench, "device_facts", lambda: SimpleNamespace(name="NVIDIA H200"))
    every = list(bench.entries(["relu", "softmax"], ["fp32", "bf16"]))
    assert bench.offers(every, ()) == [[entry] for entry in every]
    (entry,) = bench.entries(["softmax"], ["fp32"])
    other = tmp_path / "softmax.cu"
    other.write_text(load("softmax").naive("cuda"))
    ((champion, placed),) = bench.offers([entry], [other])
    assert champion == entry and placed.kernel.source == other.read_text() and placed.key[:3] == entry.key[:3]
    assert placed.key != entry.key
    for some in (every, []):
        with pytest.raises(UserError, match="--instead wants one champion of h200"):
            bench.offers(some, [other])
    for name in ("softmax-2.cu", "soft.cu", "softmax.txt"):
        (tmp_path / name).touch()
    found = bench.offers(every, [tmp_path])
    assert [(offer[0].operator, offer[0].record.dtype) for offer in found] == [
        (entry.operator, entry.record.dtype) for entry in every if entry.operator == "softmax"
    ]
    assert all([each.instead for each in offer] == [None, tmp_path / "softmax-2.cu", other] for offer in found)
    with pytest.raises(UserError, match="no file is called after an operator"):
        bench.offers([each for each in every if each.operator == "relu"], [tmp_path])


def test_it_is_told_how_a_file_fares_by_size() -> None:
    known = {"a": (2.0, 1.9, 2.1), "b": (2.0, 1.9, 2.1), "c": (2.0, 1.9, 2.1)}
    row = {"beside_naive": {"a": [1.0, 0.95, 1.05], "b": [1.95, 1.9, 2.0], "new": [3.0, 2.9, 3.1]}}
    assert list(bench.beside(row, known, "x.cu")) == [
        "a: 0.5x (0.466-0.537) of x.cu, slower beyond doubt",
        "b: 0.975x (0.922-1.03) of x.cu",
    ]


def test_of_several_files_the_fastest_right_one_goes_further(capsys: pytest.CaptureFixture[str]) -> None:
    champion = next(bench.entries(["softmax"], ["fp32"]))
    speeds = {None: 3.0, "slow.cu": 2.0, "fast.cu": 4.0, "wrong.cu": None}
    offer = [replace(champion, instead=Path(name) if name else None) for name in speeds]

    def judged(entry: bench.Entry) -> bench.Row:
        speed = speeds[str(entry.instead) if entry.instead else None]
        if speed is None:
            return {"status": "wrong", "message": "too far off"}
        ends = [speed, speed - 0.5, speed + 0.5]
        return {"status": "correct", "message": "", "over_naive": ends, "beside_naive": {"n=1": ends}}

    assert bench.fastest(offer, judged) == offer[2]
    said = capsys.readouterr().out
    assert "fast.cu: correct 4x (3.5-4.5)\nn=1: 1.33x (" in said and "wrong.cu: wrong - too far off\n" in said
    assert bench.fastest([offer[0], offer[1], offer[3]], judged) == champion, "no other is faster and right"
    speeds[None] = None
    capsys.readouterr()
    assert bench.fastest(offer[:3], judged) == offer[2], "a champion may be wrong on this machine"
    assert "n=1" not in capsys.readouterr().out, "nothing is told beside a champion that has no times"
    assert bench.fastest([champion], lambda _: pytest.fail("alone it is not judged twice")) == champion


def test_an_offer_that_the_results_have_is_not_judged_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    judged: list[Path | None] = []

    def judge(entry: bench.Entry, *_: object) -> bench.Row:
        judged.append(entry.instead)
        return row("softmax") | bench._begun(entry)

    monkeypatch.setattr(bench, "device_facts", lambda: SimpleNamespace(name="NVIDIA H200"))
    monkeypatch.setattr(bench, "kept_gpu", lambda: nullcontext(tmp_path))
    monkeypatch.setattr(bench, "_judged", judge)
    (champion,) = bench.entries(["softmax"], ["fp32"])
    other, results = tmp_path / "other.cu", tmp_path / "rows.jsonl"
    other.write_text(champion.kernel.source)
    alone = ["champions", "--operators", "softmax", "--dtypes", "fp32", "--results", str(results)]
    for words, expected in (
        (alone, [None]),
        (alone, []),
        ([*alone, "--instead", str(other)], [None, other, None]),
        ([*alone, "--instead", str(other)], []),
    ):
        judged.clear()
        monkeypatch.setattr("sys.argv", words)
        with pytest.raises(SystemExit) as ended:
            bench.main()
        assert (ended.value.code, judged) == (False, expected)


@pytest.mark.parametrize("highest", list(Level))
def test_a_right_kernel_goes_through_every_level_that_is_asked_for(highest: Level) -> None:
    operator = load("softmax")
    (entry,) = bench.entries(["softmax"], ["fp32"])
    stage = ScriptedFitness(TASK, Kernel("softmax", "cuda", operator.naive("cuda")), lambda _: 2.0)
    row = bench.told(bench.climb(stage, entry.kernel, highest))
    assert (row["status"], row["level"]) == ("correct", highest)
    assert row["over_naive"][0] > 1


@pytest.mark.parametrize("status", [Status.COMPILE_ERROR, Status.WRONG])
def test_a_refused_kernel_stays_where_it_was_refused(status: Status) -> None:
    operator = load("softmax")
    stage = ScriptedFitness(TASK, Kernel("softmax", "cuda", operator.naive("cuda")), lambda _: status)
    row = bench.told(bench.climb(stage, Kernel("softmax", "cuda", "another"), Level.CONFIRMED))
    assert (row["status"], row["level"]) == (status, Level.SCREEN)
    assert row["message"] and "over_naive" not in row


def test_the_library_is_told_where_it_was_timed() -> None:
    stage = ScriptedFitness(TASK, Kernel("softmax", "cuda", "naive"), lambda _: 2.0)
    found = stage.confirm(Kernel("softmax", "cuda", "other"))
    timing = LibraryTiming("n=1", 10.0, 20.0, math.log(2), 0.0, 20, library="torch.softmax")
    told = bench.told(replace(found, library_timings=(timing,)))
    assert (told["over_library"], told["library"], told["kinds"]) == ([2.0, 2.0, 2.0], "torch.softmax", ["call"])
    assert told["beside_library"] == {"n=1": [2.0, 2.0, 2.0]}
    timed = replace(found, timings=(Timing("n=1", 10.0, 20.0, math.log(2), 0.0, 20),))
    assert bench.told(timed)["beside_naive"] == {"n=1": [2.0, 2.0, 2.0]}
    other = replace(timing, workload="n=2", library="torch.exp", kind="composed")
    told = bench.told(replace(found, library_timings=(timing, other)))
    assert told["library"] == "torch.softmax (n=1); torch.exp, composed (n=2)"
    assert told["kinds"] == ["call", "composed"]
    assert bench.told(replace(found, library_lack="no memory"))["library_lack"] == "no memory"
    assert bench.told(found)["flagged"] == ""
    assert bench.told(replace(found, facts={"flagged": ["reads a clock"]}))["flagged"] == "reads a clock"


FACTS = {"sm_count": 132, "warp_size": 32, "max_shared_bytes": 227 << 10, "l2_bytes": 50 << 20}


def row(operator: str, status: str = "correct", **changes: Any) -> dict[str, Any]:
    made = {"operator": operator, "dtype": "fp32", "file": "h200.cu", "device": "GPU", "status": status, "seconds": 2.0}
    return (
        made
        | {"level": "confirmed", "workloads": "published+realistic", "message": "", "over_naive": [27.0, 26.0, 28.0]}
        | changes
    )


def test_the_table_puts_verdicts_beside_those_of_the_record(tmp_path: Path) -> None:
    found = {name: next(bench.entries([name], ["fp32"])) for name in ("softmax", "elu")}
    then = {name: entry.record for name, entry in found.items()}
    keys = {name: {"file": entry.key[2], "kernel": entry.key[3]} for name, entry in found.items()}
    naive, library = (
        {name: f"{getattr(record, told):.3g}x" for name, record in then.items()}
        for told in ("over_naive", "over_library")
    )
    rows = [
        row("softmax", **keys["softmax"], over_library=[2.0, 1.9, 2.1]),
        row("elu", "wrong", **keys["elu"], message="an element", over_naive=None),
    ]
    lines = bench.table(rows).splitlines()
    assert lines[0].startswith("GPU: 1 of 2 correct, 4 s.")
    assert f"| elu | fp32 | wrong | confirmed | - | {naive['elu']} | - | {library['elu']} | 2 |" in lines
    measured = f"27x (26-28) | {naive['softmax']} | 2x (1.9-2.1) | {library['softmax']}"
    assert f"| softmax | fp32 | correct | confirmed | {measured} | 2 |" in lines
    assert lines[-1] == "- elu fp32: wrong: an element"
    file = tmp_path / "results.jsonl"
    file.write_text("\n".join([json.dumps(rows[0]), '{"operator": "re']), encoding="utf-8")
    assert bench.read_rows(file) == rows[:1] and bench.read_rows(None) == []
    gone = [row("elu", file=then["elu"].file, kernel="its predecessor's"), row("no_operator"), row("elu")]
    assert bench.current([*rows, *gone]) == rows


def test_what_a_run_confirmed_need_not_be_judged_again() -> None:
    (entry,) = bench.entries(["softmax"], ["fp32"])
    assert bench.recorded(bench.Entry("softmax", entry.record.model_copy(update={"level": "full"}))) is None
    found = entry.record.model_copy(
        update={"level": "confirmed", "over_naive": 3.0, "over_naive_interval": (2.9, 3.1), "over_library": 0.5}
        | {"over_library_interval": (0.4, 0.6), "library": ("torch.softmax, composed",), "of_roofline": 0.4}
        | {"untried": ()}
    )
    told = bench.recorded(bench.Entry("softmax", found))
    assert told and told["over_naive"] == [3.0, 2.9, 3.1] and told["over_library"] == [0.5, 0.4, 0.6]
    assert told["kinds"] == ["composed"] and (told["status"], told["level"], told["seconds"]) == (
        "correct",
        "confirmed",
        0.0,
    )
    partly = found.model_copy(update={"library": ("torch.softmax", "torch.compile(torch.exp)")})
    judged = [bench.recorded(bench.Entry("softmax", each)) for each in (found, partly)]
    table = lines([each for each in judged if each]).splitlines()
    cells = ["2", "2", "3x", "0.5x", "0 of 2 (0%)", "-", "-", "-", "0.5x (1)", "0.5x (1)"]
    assert table[2].split(" | ")[1:11] == cells, "each class for itself"


def test_ten_lines_count_what_the_results_say() -> None:
    rows = [
        row("softmax", over_library=[2.0, 1.9, 2.1], kinds=["call"], of_roofline=0.96),
        row("elu", over_library=[0.5, 0.4, 0.6], kinds=["compiled"], of_roofline=0.24),
        row("gelu", over_library=[8.0, 7.0, 9.0], kinds=["composed"]),
        row("sorting", "wrong", over_naive=None),
    ]
    told = lines(rows).splitlines()
    assert "| all | 4 | 3 | 27x | 2x | 2 of 3 (67%) | 2x (1) | 0.5x (1) | - | 8x (1) | - | - | 48% | 1 of 2 |" in told
    assert (
        "| elementwise | 2 | 2 | 27x | 2x | 1 of 2 (50%) | - | 0.5x (1) | - | 8x (1) | - | - | 24% | 0 of 1 |" in told
    )
    assert "| scan-sort | 1 | 0 | - | - | 0 of 0 | - | - | - | - | - | - | - | 0 of 0 |" in told
    assert told[-3] == "Slower than the strongest rival beyond doubt, 1 tasks: elu fp32 0.5x (0.4-0.6) (compiled)."
    assert told[-2] == "By size, by more than 2% beyond doubt: not told."
    assert told[-1] == "Not right: sorting fp32: wrong."
    flagged = lines([rows[0] | {"flagged": "reads a clock"}, *rows[1:]]).splitlines()
    assert flagged[-4] == "Flagged: softmax fp32 reads a clock." and not any("Flagged" in line for line in told)
    alone = row("relu", over_library=[3.0, 2.9, 3.1], kinds=["call"], untried="torch.compile(torch.relu)")
    assert "| all | 5 | 4 | 27x | 2x | 2 of 3 (67%) | 2x (1) | 0.5x (1) | - | 8x (1) | - | 3x (1) | 48% | 1 of 2 |" in (
        lines([*rows, alone]).splitlines()
    ), "it does not count beside the strongest rival"
    spared = row("spmv_csc", over_library=[0.8, 0.7, 0.9], kinds=["call", "converted"])
    slower = lines([*rows, spared]).splitlines()[-3]
    assert slower.startswith(
        "Slower than the strongest rival beyond doubt, 2 tasks (in 1 the rival's operand was converted"
    )
    assert slower.endswith("elu fp32 0.5x (0.4-0.6) (compiled), spmv_csc fp32 0.8x (0.7-0.9) (mixed).")


def test_sizes_that_are_slower_are_counted_by_set_beside_each_kind_of_rival() -> None:
    published, realistic = ([w.name for w in load("softmax").workload_set(name)] for name in ("published", "realistic"))
    assert not {*published[:3]} & {*realistic}
    ratios = ([0.9, 0.8, 0.97], [0.95, 0.9, 0.99], [1.5, 1.4, 1.6])
    sizes = {**dict(zip(published, ratios, strict=False)), realistic[0]: [2.0, 1.9, 2.1]}
    timed = {"over_library": [1.0, 0.9, 1.1], "kinds": ["call"], "beside_library": sizes}
    rows = [
        row("softmax", beside_naive={published[0]: [3.0, 2.0, 4.0]}, **timed),
        row("softmax", untried="torch.compile(torch.softmax)", **timed),
        row("softmax", "wrong", over_naive=None, beside_library=sizes),
    ]
    as_fast = "1 of 1 tasks are at least as fast in the mean and 1 at least 0.98x"
    assert lines(rows).splitlines()[-3:-1] == [
        "At published sizes, by more than 2% beyond doubt: "
        f"1 of 3 (33.3%) are slower than the strongest rival, {as_fast}, 1.09x; "
        f"1 of 3 (33.3%) are slower than the rivals that were tried, {as_fast}, 1.09x; "
        f"0 of 1 (0.0%) are slower than the plain kernel, {as_fast}, 3x.",
        "At realistic sizes, by more than 2% beyond doubt: "
        f"0 of 1 (0.0%) are slower than the strongest rival, {as_fast}, 2x; "
        f"0 of 1 (0.0%) are slower than the rivals that were tried, {as_fast}, 2x.",
    ]


def test_a_task_that_is_hardly_slower_in_the_mean_is_told_apart_from_one_that_is_slower() -> None:
    sizes = [w.name for w in load("softmax").workload_set("realistic")]
    timed = {"over_library": [1.0, 0.9, 1.1], "kinds": ["call"]}
    rows = [
        row("softmax", **timed, beside_library={sizes[0]: [mean, mean - 0.1, mean + 0.1]}) for mean in (1.1, 0.99, 0.9)
    ]
    said = "1 of 3 tasks are at least as fast in the mean and 2 at least 0.98x"
    assert said in lines(rows)


@pytest.mark.parametrize("name", ["matrix_mul", "spmv_csr", "softmax", "conv_2d"])
def test_sizes_that_no_file_lists_are_drawn_and_stay_out_of_records(name: str) -> None:
    entry = next(bench.entries([name], ["fp32"]))
    operator = bench.drawn(entry, 6, 1, FACTS)
    drawn = operator.workload_set(bench.UNLISTED)
    assert len(drawn) == 6 and not {w.name for w in drawn} & {w.name for w in load(name).workloads}
    assert [w.name for w in bench.drawn(entry, 6, 1, FACTS).workloads] == [w.name for w in operator.workloads]
    told = {drawn[0].name: [0.9, 0.8, 0.95]}
    measured = row(
        name, file=entry.record.file, kernel=entry.kernel.id, device="NVIDIA H200", workloads=bench.UNLISTED,
        over_library=[0.9, 0.8, 0.95], kinds=["call"], untried="", beside_library=told,
    )  # fmt: skip
    assert not bench._may_stand(measured) and bench._may_stand(measured | {"workloads": "realistic"})
    assert "At unlisted sizes, by more than 2% beyond doubt: 1 of 1 (100.0%) are slower than the strongest" in lines(
        [measured]
    )


def test_what_was_measured_by_size_stays_in_the_record(tmp_path: Path) -> None:
    (entry,) = bench.entries(["softmax"], ["fp32"])
    listed = load("softmax").workload_set("cpu")[0].name
    sizes = {listed: [2.0, 1.9, 2.1], 'odd "name"': [0.5, 0.4, 0.6]}
    measured = row(
        "softmax", over_library=[1.0, 0.9, 1.1], kinds=["call"], calls=["torch.softmax"], untried="",
        beside_library=sizes, beside_naive={listed: [3.0, 2.9, 3.1]}, device="D", workloads="cpu",
        judged="2026-01-31", versions={"torch": "2.11.0", "cuda.compute": "1.2.1"},
    )  # fmt: skip
    renewed = entry.record.model_copy(update=bench._figures(measured))
    (tmp_path / CHAMPIONS).mkdir()
    (tmp_path / CHAMPIONS / "champions.toml").write_text(records_text([renewed, entry.record]), encoding="utf-8")
    assert champions(tmp_path) == (renewed, entry.record)
    told = bench.recorded(bench.Entry("softmax", renewed))
    assert told and {size: [*around] for size, around in told["beside_library"].items()} == sizes
    assert lines([told]).splitlines()[-2].startswith("At cpu sizes, by more than 2% beyond doubt: 0 of 1 (0.0%) are")


def test_shares_of_the_roofline_are_those_of_the_timed_workloads() -> None:
    operator, peaks = load("elu"), Peaks("GPU", 4000.0, 4000.0, {}, 1.0)
    workload = operator.workload_set("realistic")[0]
    model = roofline(operator, workload.dims, "fp32", peaks)
    stage = ScriptedFitness(TASK, Kernel("softmax", "cuda", "naive"), lambda _: 2.0)
    timing = Timing(workload.name, 4 * model.attainable_us, 20.0, 0.0, 0.0, 20)
    found = replace(stage.confirm(Kernel("softmax", "cuda", "other")), timings=(timing,))
    assert bench.of_roofline(operator, "fp32", found, peaks) == 0.25


def test_a_model_that_tells_a_chain_in_pieces_leads_to_its_end_with_blunders_between() -> None:
    operator, random = load("matrix_mul"), Random(1)
    known = pieces.chain(operator, "fp32", "cpu")
    assert known and [known.nearest(source) for source in known.sources] == list(range(6))
    source, fruitless = known.sources[0], 0
    for _ in range(200):
        answer = known.answer(source, random, wrong=0.3)
        try:
            child = child_source(source, answer)
        except AnswerError:
            fruitless += 1
            continue
        if child in known.sources and known.nearest(child) > known.nearest(source):  # a search keeps what is faster
            source = child
    assert source == known.sources[-1] and fruitless > 20
    ideas = pieces.chain(load("softmax"), "fp32", "cuda")
    assert ideas and ideas.sources[-1] == operator_text("softmax", "champions/h200")
    assert pieces.chain(load("softmax"), "fp32", "cpu") is None


@pytest.mark.slow
def test_every_kernel_of_a_chain_has_a_plan_that_stands() -> None:
    operators = [load(name) for name in folders()]
    for dtype in ("fp32", "bf16"):
        known = pieces.chains([each for each in operators if dtype in each.dtypes.get("cuda", ())], dtype, "cuda")
        assert len(known) > 60
        for name, chain in known.items():
            assert all(pieces._stands(load(name), dtype, "cuda", source) for source in chain.sources), (name, dtype)


def test_a_lesser_kernel_keeps_the_values_that_its_constraints_want() -> None:
    text = """/*! evo
[tune]
A = [1, 8]
B = [2, 8]
where = ["A * B <= 8", "A >= min(B, 1)"]

[[launch]]
kernel = "softmax"
grid = [1]
block = [32]
args = ["x", "y", "rows", "cols"]
*/
__launch_bounds__(1024) #pragma
"""
    lesser = dict(pieces._lesser(text, partial(pieces._stands, load("softmax"), "fp32", "cuda")))
    assert lesser == {"other tunables": text.replace("[2, 8]", "[8, 2]")}


def operator_text(name: str, file: str) -> str:
    return load(name).ancestor(file, "cuda").read_text(encoding="utf-8")


def test_shares_go_by_what_was_known_then_and_trust_no_lucky_estimate(tmp_path: Path) -> None:
    history = story()
    for number in (2, 3):
        history.call(number, "big", status="answered")
    found = reached(stored(tmp_path / "r", history), 1.2, calls=[3, 4], minutes=[])
    assert found["shares"] == {"3": 0.9}, (
        "G, not confirmed: 1.1 less 1.96 * 0.01; after the fourth nothing came any more"
    )
    assert (found["answers"], found["answers_to_90"]) == (4, 2)
    found = reached(tmp_path / "r", 1.0, calls=[], minutes=[0.1, 0.2, 1.0])
    assert list(found["shares"]) == ["0.1", "0.2", "1"] and found["answers_to_90"] is None
    assert found["shares"]["0.1"] < found["shares"]["0.2"] < found["shares"]["1"] == 1.08
    assert found["best"][0] == 3.004 and found["level"] == "screen"


def test_what_was_measured_anew_goes_into_the_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(load("softmax").folder, tmp_path / "softmax")
    operator = load(str(tmp_path / "softmax"))
    monkeypatch.setattr(bench, "load", lambda name: operator)
    noted = [each.model_copy(update={"note": "not confirmed yet"}) for each in champions(operator.folder)]
    write_records(operator, noted)
    fp32, bf16 = (next(bench.entries(["softmax"], [dtype])) for dtype in ("fp32", "bf16"))
    figures = {"over_library": [1.25, 1.2, 1.3], "calls": ["torch.compile(torch.softmax)"], "untried": ""}
    measured = {"workloads": "realistic", "judged": "2026-11-27", "device": "NVIDIA H200"} | figures
    rows = [row("softmax", file=e.key[2], kernel=e.key[3], **measured) | {"dtype": e.key[1]} for e in (fp32, bf16)]
    assert bench.record(rows) == 2
    known = {each.dtype: each for each in champions(operator.folder) if each.file == fp32.key[2]}["fp32"]
    assert (known.over_naive, known.over_library, known.over_library_interval) == (27.0, 1.25, (1.2, 1.3))
    assert (known.library, known.untried, known.judged) == (("torch.compile(torch.softmax)",), (), date(2026, 11, 27))
    assert known.lineage == fp32.record.lineage and known.added == fp32.record.added
    assert not known.note, "it was one on the verdict before"
    elsewhere = [each | {"device": "NVIDIA H100", "over_naive": [1.0, 1.0, 1.0]} for each in rows]
    assert bench.record(elsewhere) == 0, "a champion of another device"
    weaker = [each | {"over_library": [9.0, 8.0, 10.0], "calls": ["torch.softmax"], "untried": "it"} for each in rows]
    assert bench.record(weaker) == 0, "a compiled rival is not forgotten"


def test_a_task_counts_once_beside_all_rivals_first_then_on_the_device_of_its_champion() -> None:
    files = [
        ("elu", "h100.cu", ""),
        ("elu", "h200.cu", ""),
        ("gelu", "h100.cu", ""),
        ("gelu", "h200.cu", "torch.compile"),
    ]
    rows = [row(operator, file=file, device="NVIDIA H200", untried=untried) for operator, file, untried in files]
    rows += [row("relu", file="h200.cu", device="NVIDIA H100", untried="torch.compile")]
    found = bench.one_each([each | {"over_library": [1.0, 0.9, 1.1]} for each in rows])
    assert [(each["operator"], each["file"]) for each in found] == [
        ("elu", "h200.cu"), ("gelu", "h100.cu"), ("relu", "h200.cu")
    ]  # fmt: skip
