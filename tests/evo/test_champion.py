"""A run's find takes the place of a champion, or the run says why not."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import date
from pathlib import Path
from shutil import copytree
from typing import Any

import pytest
from typer.testing import CliRunner

from evo.api import Run
from evo.cli.commands import app
from evo.packaging.champion import choices, place_of, take
from operators.catalog import load
from operators.champions import champions, offered, standing, write_champion
from operators.definition.fingerprint import fingerprint
from operators.definition.spec import Operator
from operators.errors import UserError
from operators.kernel import Kernel
from tests.choosing import some_slow
from tests.store.rows import History, event, run
from tests.store.story import Store, joined

NAMES = iter(range(10**6))
STANDING = """[[champion]]
file = "h200.cu"
dtype = "{}"
device = "NVIDIA H200"
author = "ann"
added = 2026-01-31
level = "full"
workloads = "cpu"
status = "correct"
"""


@pytest.fixture
def operator(axpb: Operator, tmp_path: Path) -> Operator:
    """One whose champion for both dtypes is its naive kernel under another name."""
    folder = tmp_path / "axpb"
    copytree(axpb.folder, folder)
    (folder / "champions").mkdir()
    source = (folder / "naive.cu").read_text(encoding="utf-8")
    (folder / "champions" / "h200.cu").write_text(f"{source}// by ann\n", encoding="utf-8")
    records = "# Ours.\n\n" + "\n".join(map(STANDING.format, ("fp32", "bf16")))
    (folder / "champions" / "champions.toml").write_text(records, encoding="utf-8")
    return load(str(folder))


@pytest.fixture
def searched(operator: Operator, tmp_path: Path) -> Iterator[Callable[..., Run]]:
    """A run that began with the naive kernel and the champion, and tuned what a model wrote."""

    def found(
        best: float = 1.2, champion: float = 1.0, *, se: float = 0.01, level: str = "confirmed",
        status: str = "correct", old: str = "correct", started: str = "champions/h200",
        by_workload: tuple[tuple[float, ...], ...] = (), **changed: Any,
    ) -> Run:  # fmt: skip
        task, source = f"{operator.name}/fp32/cuda", operator.naive("cuda")
        written = source.replace("[[launch]]", "[tune]\nBLOCK = [256, 512]\n[[launch]]").replace("256", "BLOCK")
        written = written.replace("[BLOCK, 512]", "[256, 512]").replace("block = [BLOCK]", 'block = ["BLOCK"]')
        ours = (operator.folder / "champions" / "h200.cu").read_text(encoding="utf-8")
        made = [
            Kernel("axpb", "cuda", source), Kernel("axpb", "cuda", ours if started else f"{ours}// once\n"),
            Kernel("axpb", "cuda", written), Kernel("axpb", "cuda", written, {"BLOCK": 512}),
        ]  # fmt: skip
        naive, first, child, tuned = (each.id for each in made)
        told = History(task)
        told.propose(0, "ancestor", "", naive, description="naive.cu as it stands")
        told.evaluate(0, naive, "full", "correct", log_speedup=0.0)
        told.propose(1, "ancestor", "", first, description="champions/h200.cu as it stands")
        told.evaluate(1, first, "full", old, log_speedup=champion if old == "correct" else None)
        told.propose(2, "rewrite", first, child, model="openai/big", description="vectors")
        told.evaluate(2, child, "full", "correct", log_speedup=best - 0.05)
        told.propose(3, "tune", child, tuned, description="BLOCK 512", kind="trial")
        told.evaluate(3, tuned, "full", "correct", log_speedup=best)
        right = {"log_speedup": best, "log_speedup_se": se} if status == "correct" else {}
        told.evaluate(None, tuned, level, status, **right)
        told.tables["evaluations"][-1]["log_speedup_se"] = se if right else None
        timings: list[dict[str, Any]] = []
        for column, kernel in enumerate((tuned, first)):
            (evaluation,) = [e for e in told.tables["evaluations"] if e["kernel_id"] == kernel][-1:]
            evaluation["anchor_id"] = naive if by_workload else None
            timings += [
                {"evaluation_id": evaluation["evaluation_id"], "workload": f"n={number}", "latency_us": 1.0,
                 "anchor_latency_us": 1.0, "log_ratio": ratios[column], "log_ratio_se": 0.01, "pairs": 9}
                for number, ratios in enumerate(by_workload)
                if column < len(ratios)
            ]  # fmt: skip
        known = fingerprint(operator, target="cuda", workload_set=changed.get("workload_set", "cpu"))
        config = {"operators": [str(operator.folder)], "target": "cuda", "workload_set": "cpu"} | changed
        host = {"gpus": ["NVIDIA H200"], "versions": {"driver": "570.1"}, "processor": "P"}
        kernels = [
            {"kernel_id": k.id, "source_id": k.source_id, "operator": "axpb", "target": "cuda", "source": k.source,
             "values_json": json.dumps(dict(k.values))}
            for k in made
        ]  # fmt: skip
        definitions = event("definitions", json.dumps({"axpb": known | {"which kernel files there are": "x"}}))
        row = run() | {"config_json": json.dumps(config), "host_json": json.dumps(host), "engine_version": "1.0"}
        folder = tmp_path / "runs" / f"r{next(NAMES)}"
        folder.parent.mkdir(exist_ok=True)
        with Store(folder, create=True) as store:
            store.commit(
                joined({"runs": [row], "events": [definitions], "kernels": kernels, "timings": timings}, told.tables)
            ).result()
        return Run(folder)

    yield found


def test_a_confirmed_kernel_that_is_faster_beyond_doubt_takes_the_place_of_the_champion_of_its_dtype(
    operator: Operator, searched: Callable[..., Run]
) -> None:
    found = searched(by_workload=((2.0, 1.0), (0.49, 0.5)))
    (choice,) = choices(found, today=date(2026, 11, 23))
    assert "1.22x" in choice.line and "of h200.cu (full)" in choice.line
    result = CliRunner().invoke(app, ["champion", str(found.folder), "axpb/fp32", "--dry-run"])
    assert "1 of 1 champions would be replaced" in result.output, result.output
    assert len(champions(operator.folder)) == 2, "nothing was written"
    take(found, [choice])
    kept, new = champions(operator.folder)
    assert (kept.file, kept.dtype, new.file, new.dtype) == ("h200.cu", "bf16", "h200-fp32.cu", "fp32")
    source = operator.ancestor(f"champions/{new.stem}", "cuda").read_text(encoding="utf-8")
    assert source == found.kernel(new.kernel).text and "BLOCK = [512, 256]" in source
    assert offered(operator, "cuda", "fp32") == ("champions/h200-fp32",)
    assert offered(operator, "cuda", "bf16") == ("champions/h200",)
    assert new.author == "openai/big, tune, from champions/h200.cu (ann)"
    assert [step.split(" ", 1)[1] for step in new.lineage][1:] == ["rewrite by openai/big: vectors", "tune: BLOCK 512"]
    assert (new.run, new.values, new.added, new.level) == (found.id, {"BLOCK": 512}, date(2026, 11, 23), "confirmed")
    assert (new.device, new.versions, new.engine) == ("NVIDIA H200", {"driver": "570.1"}, "1.0")
    assert new.over_naive == 3.32 and new.over_previous == 1.221 and new.previous == "h200.cu, ann"
    assert {size: round(around[0], 2) for size, around in new.over_naive_by_size.items()} == {"n=0": 7.39, "n=1": 1.63}
    low, high = new.over_previous_interval or (0, 0)
    assert 1.0 < low < 1.221 < high
    assert (operator.folder / "champions" / "champions.toml").read_text(encoding="utf-8").startswith("# Ours.\n\n[[")
    with pytest.raises(UserError, match="no task gelu"):
        choices(found, ["gelu"])


def test_the_next_one_replaces_the_file_and_what_nobody_uses_any_more_goes(
    operator: Operator, searched: Callable[..., Run]
) -> None:
    records = (operator.folder / "champions" / "champions.toml").read_text(encoding="utf-8")
    only = records[: records.rindex("[[champion]]")]
    (operator.folder / "champions" / "champions.toml").write_text(only, encoding="utf-8")
    found = searched()
    take(found, choices(found))
    assert [path.name for path in sorted((operator.folder / "champions").glob("*.cu"))] == ["h200-fp32.cu"]
    current = standing(operator, "h200", "cuda", "fp32")
    assert current and current.run == found.id and standing(operator, "h100", "cuda", "fp32") is None
    (again,) = choices(found)
    assert again.record is None and again.words == "h200-fp32.cu is the run's own best kernel already"


def test_one_text_for_two_dtypes_is_one_file_until_one_of_them_has_another(operator: Operator) -> None:
    folder = operator.folder / "champions"
    held = {record.dtype: record for record in champions(operator.folder)}

    def written(dtype: str, source: str) -> list[tuple[str, str]]:
        new = held[dtype].model_copy(update={"file": f"h200-{dtype}.cu", "added": date(2026, 11, 23)})
        record = write_champion(operator, "h200", new, source)
        assert (folder / record.file).read_text(encoding="utf-8") == source
        assert {path.name for path in folder.glob("*.cu")} == {each.file for each in champions(operator.folder)}
        return sorted((each.dtype, each.file) for each in champions(operator.folder))

    assert written("fp32", "// one") == [("bf16", "h200.cu"), ("fp32", "h200-fp32.cu")]
    assert written("bf16", "// one") == [("bf16", "h200.cu"), ("fp32", "h200.cu")]
    assert written("bf16", "// two") == [("bf16", "h200-bf16.cu"), ("fp32", "h200.cu")]
    assert written("fp32", "// two") == [("bf16", "h200.cu"), ("fp32", "h200.cu")]


WHY = [
    ({"best": 1.02}, "1.02x (95 %: 0.992 to 1.05) of h200.cu (full), which is not faster beyond doubt"),
    (
        {"by_workload": ((2.0, 1.0), (0.3, 0.5))},
        "0.819x (95 %: 0.796 to 0.842) of h200.cu on n=1, and slower on 1 of 2",
    ),
    ({"by_workload": ((2.0, 1.0), (2.0,))}, "h200.cu was not timed at 1 of its 2 sizes in this run: evo resume"),
    ({"by_workload": ((2.0, 1.0), (-0.1, -0.1))}, "of the naive kernel on n=1, and slower on 1 of 2 workloads; search"),
    ({"level": "full"}, "no kernel of the run is confirmed: evo resume"),
    ({"status": "quarantined"}, "no kernel of the run is confirmed"),
    ({"best": 0.01, "champion": -1.0, "se": 0.1}, "not faster than the naive kernel beyond doubt"),
    ({"started": ""}, "h200.cu as it stands is no kernel of the run"),
    (
        {"started": "", "ancestor_files": {"axpb/fp32/cuda": ["champions/h200"]}},
        "was not judged in its time: evo resume",
    ),
    ({"old": "timeout"}, "h200.cu has no time in this run: it is timeout there"),
    ({"workload_set": "published"}, "h200.cu is for the workloads `cpu`, which this run did not time"),
]


@pytest.mark.parametrize(("changes", "words"), some_slow(WHY, 3, ids=[words[:40] for _, words in WHY]))
def test_why_a_champion_stays_is_told_in_one_line(
    searched: Callable[..., Run], changes: dict[str, Any], words: str
) -> None:
    (choice,) = choices(searched(**changes))
    assert choice.record is None and words in choice.line and "\n" not in choice.line


def test_a_wrong_champion_goes_and_a_changed_operator_or_a_folder_that_cannot_be_written_is_told(
    operator: Operator, searched: Callable[..., Run]
) -> None:
    found = searched(old="wrong")
    (choice,) = choices(found)
    assert choice.record and choice.record.over_previous is None and "h200.cu is wrong in this run" in choice.words
    (operator.folder / "champions" / choice.record.file).mkdir()
    with pytest.raises(UserError, match=r"champions: cannot be written: .*work in a checkout"):
        take(found, [choice])
    with (operator.folder / "reference.py").open("a", encoding="utf-8") as file:
        file.write("\nx = 1\n")
    (choice,) = choices(found)
    assert choice.record is None and choice.words == "the operator is another one by now: reference.py"


def test_a_device_is_called_by_its_model() -> None:
    called = {
        "NVIDIA H200": "h200", "NVIDIA H100 80GB HBM3": "h100", "NVIDIA H100 PCIe": "h100-pcie", "NVIDIA B200": "b200",
        "NVIDIA A100-SXM4-80GB": "a100", "NVIDIA GeForce RTX 4090": "rtx-4090", "accelerator_type:H200": "h200",
        "AMD EPYC 7763 64-Core Processor": "epyc-7763", "Intel(R) Xeon(R) Processor": "xeon",
        "Intel(R) Xeon(R) Platinum 8481C CPU @ 2.70GHz": "xeon-platinum-8481c",
    }  # fmt: skip
    assert {name: place_of(name) for name in called} == called
