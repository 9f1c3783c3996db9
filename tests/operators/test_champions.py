"""The best kernels known: their records, which dtypes they are offered for, and what they promise to run on."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from shutil import copytree

import pytest

from evo.compatibility import KERNEL_FILES, conditions
from evo.config import RunConfig
from evo.packaging.package import from_file
from evo.report.reference import CHANGED, one
from fitness.targets import GpuModels
from mutators.base import Request
from mutators.given import AncestorFile
from operators.catalog import folders, load
from operators.champions import champions, is_as_judged, offered, write_champion
from operators.definition.spec import Operator, Task
from operators.dtypes import ACCUMULATOR
from operators.errors import OperatorError
from operators.kernel import Kernel
from operators.plan.reading import parse_plan
from tests.operators.sampling import of_every_operator
from tests.operators.test_operator_folders import FACTS

NAMES = sorted(name for name, folder in folders().items() if (folder / "champions").exists())
H200: Mapping[str, int] = FACTS | {"sm_count": 132, "max_shared_bytes": 232448, "l2_bytes": 60 << 20}
RECORD = """[[champion]]
file = "fast-fp32.cu"
dtype = "fp32"
device = "D"
author = "A"
added = 2026-01-31
level = "confirmed"
workloads = "cpu"
status = "correct"
over_naive = 2.5
note = "of even sizes alone"
"""


@pytest.fixture
def operator(axpb: Operator, tmp_path: Path) -> Operator:
    """One with champions of every kind of name, all of them its naive kernel."""
    folder = tmp_path / "axpb"
    copytree(axpb.folder, folder)
    (folder / "champions").mkdir()
    for stem in ("fast-fp32", "fast", "rtx-4090", "rtx-4090-bf16"):
        (folder / "champions" / f"{stem}.cu").write_bytes((folder / "naive.cu").read_bytes())
    (folder / "champions" / "champions.toml").write_text(RECORD, encoding="utf-8")
    return load(str(folder))


def test_every_operator_has_one() -> None:
    assert set(folders()) == set(NAMES)


@of_every_operator
def test_every_file_has_a_record_for_every_dtype_that_it_is_offered_for(operator: Operator) -> None:
    recorded = {(champion.dtype, f"champions/{champion.stem}") for champion in champions(operator.folder)}
    found = {(d, champion) for d in operator.dtypes["cuda"] for champion in offered(operator, "cuda", d)}
    assert recorded == found
    files = {f"champions/{path.stem}" for path in (operator.folder / "champions").glob("*.cu")}
    assert files == {champion for _, champion in recorded}


@of_every_operator
def test_every_champion_runs_on_what_it_was_measured_on(operator: Operator) -> None:
    for champion in champions(operator.folder):
        source = operator.ancestor(f"champions/{champion.stem}", "cuda").read_text(encoding="utf-8")
        plan = parse_plan(source, operator, "cuda", name=champion.file)
        supported, occupancy = 0, {launch.kernel: 1 for launch in plan.launches}
        for workload in (*operator.workload_set(champion.workloads), *operator.hidden):
            dims = {**workload.dims, **dict.fromkeys(operator.data_dims, 1)}
            if not plan.supports(operator, dims, {}, H200, champion.dtype):
                assert workload.set == "hidden", (champion.file, champion.dtype, workload.name)
                continue
            supported += workload.set == "hidden"
            resolved = plan.resolve(
                operator, dtype=champion.dtype, dims=dims, values={}, facts=H200, occupancy=occupancy
            )
            assert resolved.steps
        assert supported >= 2, (champion.file, champion.dtype)


def test_a_champion_is_offered_for_its_own_dtype_or_for_those_without_one(operator: Operator) -> None:
    assert operator.champions("cuda", "fp32") == ("champions/fast-fp32", "champions/rtx-4090")
    assert operator.champions("cuda", "bf16") == ("champions/fast", "champions/rtx-4090-bf16")
    assert operator.champions("cpu", "fp32") == ()
    assert "champions/fast" not in operator.ancestors("cuda")
    records = RECORD + RECORD.replace("fast-fp32.cu", "rtx-4090.cu")
    (operator.folder / "champions" / "champions.toml").write_text(records, encoding="utf-8")
    assert offered(operator, "cuda", "fp32") == ("champions/fast-fp32", "champions/rtx-4090")
    assert offered(operator, "cuda", "fp16") == ("champions/fast",), "nobody measured the other one with it"


def test_a_request_by_its_name_brings_the_champion(operator: Operator) -> None:
    request = Request(Task("axpb", "fp32", "cuda"), 3, "ancestor", (), 0, {"name": "champions/fast-fp32"})
    proposal = AncestorFile().propose(request, (), operator)
    assert proposal.kernel == Kernel("axpb", "cuda", operator.naive("cuda"))
    assert proposal.description == "champions/fast-fp32.cu as it stands"


def test_a_search_from_all_files_starts_from_champions(operator: Operator) -> None:
    def config(**changes: object) -> RunConfig:
        named = {"operators": [str(operator.folder)], "target": "cuda", "dtypes": ["fp32"], "workload_set": "cpu"}
        return RunConfig.model_validate(named | changes)

    def files(made: RunConfig) -> tuple[str, ...]:
        return made.ancestor_names(operator, Task("axpb", "fp32", "cuda"))

    def protected(made: RunConfig) -> str | None:
        (parts,) = (conditions(made, GpuModels()).definitions or {}).values()
        return parts.get(KERNEL_FILES)

    new, naive = config(), config(ancestors="naive")
    assert files(new) == (*operator.ancestors("cuda"), "champions/fast-fp32", "champions/rtx-4090")
    assert files(naive) == ("naive",)
    before = [protected(made) for made in (new, naive)]
    assert before[1] is None
    (operator.folder / "champions" / "newer-bf16.cu").write_text("", encoding="utf-8")
    after = [protected(made) for made in (new, naive)]
    assert after[0] == before[0], "it is no kernel for fp32"
    (operator.folder / "champions" / "newer-fp32.cu").write_text("", encoding="utf-8")
    after = [protected(made) for made in (new, naive)]
    assert after[0] != before[0] and after[1:] == before[1:]


def test_an_operator_tells_what_was_measured_of_its_champions(operator: Operator) -> None:
    told = {row["property"]: row["value"] for row in one(operator)}
    assert (
        told["champions/fast-fp32.cu, fp32"] == "on D, cpu: correct (confirmed); 2.50x over naive; of even sizes alone"
    )
    assert json.dumps(told)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('status = "correct"\n', "", "`champion[0].status` is missing"),
        ("over_naive = 2.5", "over_naive = -1", "`champion[0].over_naive`: input should be greater than 0"),
        ("over_naive", "over_nave", "`champion[0].over_nave` is not a key that exists here"),
        ('"fast-fp32.cu"', '"../naive.cu"', "`champion[0].file`"),
        ('"D"', "D", "not valid TOML"),
    ],
)
def test_what_is_wrong_with_a_record_is_told(operator: Operator, old: str, new: str, words: str) -> None:
    path = operator.folder / "champions" / "champions.toml"
    path.write_text(RECORD.replace(old, new), encoding="utf-8")
    with pytest.raises(OperatorError, match=r"champions\.toml") as told:
        champions(operator.folder)
    assert words in str(told.value) and "\n" not in str(told.value)


def test_dtypes_are_known_by_their_names() -> None:
    assert {champion.dtype for name in NAMES for champion in champions(folders()[name])} <= set(ACCUMULATOR)


def test_a_file_that_was_changed_since_has_no_figures(operator: Operator) -> None:
    path = operator.folder / "champions" / "fast-fp32.cu"
    [record] = champions(operator.folder)
    write_champion(operator, "fast", record, path.read_text(encoding="utf-8"))
    judged, told = champions(operator.folder)[0], "champions/fast-fp32.cu, fp32"
    assert is_as_judged(operator.folder, judged)
    assert "2.50x over naive" in {row["property"]: row["value"] for row in one(operator)}[told]
    assert from_file(str(operator.folder), "champions/fast-fp32").verdict
    path.write_text(path.read_text(encoding="utf-8") + "// faster\n", encoding="utf-8")
    assert not is_as_judged(operator.folder, judged)
    assert {row["property"]: row["value"] for row in one(operator)}[told] == CHANGED
    assert from_file(str(operator.folder), "champions/fast-fp32").verdict is None


@pytest.mark.parametrize("name", NAMES)
def test_records_are_of_the_files_beside_them(name: str) -> None:
    folder = folders()[name]
    assert [each.file for each in champions(folder) if not is_as_judged(folder, each)] == []
