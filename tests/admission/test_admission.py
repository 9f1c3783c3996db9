"""An operator is admitted when its oracle refuses every mutant of the naive kernel and accepts every better variant.

`python -m tests.admission` prints how many of each there are and at which level the mutants fall.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from fitness.evaluation import Level
from operators.catalog import folders
from tests.admission.cases import Case, absent, admitted, cases, common_mutants
from tests.admission.judging import Judge
from tests.operators.sampling import SAMPLE

CASES = {name: tuple(cases(name)) for name in admitted()}


@pytest.fixture(scope="module")
def judge(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[Judge]:
    made = Judge(tmp_path_factory.mktemp("admission"), slow=request.config.getoption("--slow"))
    yield made
    made.close()


def by_task() -> Iterator[object]:
    """Each task has a fitness stage of its own."""
    for of in CASES.values():
        for case in sorted(of, key=lambda case: case.dtype):
            yield pytest.param(case, id=case.id, marks=[pytest.mark.slow] if case.slow else [])


@pytest.mark.parametrize("case", list(by_task()))
def test_the_oracle_tells_right_from_wrong(case: Case, judge: Judge) -> None:
    result = judge.verdict(case)
    assert result.status is case.status, result.message
    if not case.is_mutant:
        assert result.level is Level.FULL


def test_every_operator_is_admitted() -> None:
    assert set(admitted()) == set(folders())


@pytest.mark.parametrize("operator", CASES)
def test_every_operator_has_its_share_of_cases(operator: str) -> None:
    mutants = {c.name for c in CASES[operator] if c.is_mutant}
    variants = {c.name for c in CASES[operator] if not c.is_mutant}
    assert len(mutants) >= (20 if operator in SAMPLE else 15)
    assert len(variants) >= (8 if operator in SAMPLE else 3)
    assert len(CASES[operator]) == len({c.id for c in CASES[operator]}), "names must differ"
    assert common_mutants() == (common_mutants() & mutants) | set(absent(operator))
    assert all(absent(operator).values()), "a reason for every mutant that is left out"


def test_cases_are_no_kernels_in_disguise() -> None:
    """No two cases of a task are the same kernel file, and none but one is the naive kernel."""
    for of in CASES.values():
        for dtype in ("fp32", "fp64"):
            ids = [c.kernel().id for c in of if c.dtype == dtype]
            assert len(ids) == len(set(ids))
