"""An operator is admitted when its oracle refuses every mutant of the naive kernel and accepts every better variant.

`python -m tests.admission` prints how many of each there are and at which level the mutants fall.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from fitness.evaluation import Evaluation, Level
from operators.catalog import folders
from operators.definition.spec import Operator
from tests.admission.cases import Case, absent, admitted, cases, common_mutants
from tests.admission.judging import Judge
from tests.operators.sampling import SAMPLE, every_operator, of_every_operator


@pytest.fixture
def judge(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[Judge]:
    made = Judge(tmp_path_factory.mktemp("admission"), slow=request.config.getoption("--slow"))
    yield made
    made.close()


def deserved(case: Case, found: Evaluation) -> bool:
    return found.status is case.status and (case.is_mutant or found.level is Level.FULL)


@pytest.mark.parametrize("operator", every_operator(("softmax", "spmv_csr")))
def test_the_oracle_tells_right_from_wrong(operator: str, judge: Judge) -> None:
    wrongly = []
    for case in judge.cases(operator):
        found = judge.verdict(case)
        if not deserved(case, found):
            wrongly.append(f"{case.id}: {found.level} {found.status}, not {case.status}: {found.message}")
    assert not wrongly, "\n".join(wrongly)


def test_every_operator_is_admitted() -> None:
    assert set(admitted()) == set(folders())


@of_every_operator
def test_every_operator_has_its_share_of_cases(made: Operator) -> None:
    operator = made.name
    found = tuple(cases(operator))
    mutants = {c.name for c in found if c.is_mutant}
    variants = {c.name for c in found if not c.is_mutant}
    assert len(mutants) >= (20 if operator in SAMPLE else 15)
    assert len(variants) >= (8 if operator in SAMPLE else 3)
    assert len(found) == len({c.id for c in found}), "names must differ"
    assert common_mutants() == (common_mutants() & mutants) | set(absent(operator))
    assert all(absent(operator).values()), "a reason for every mutant that is left out"


@pytest.mark.parametrize("operator", every_operator())
def test_cases_are_no_kernels_in_disguise(operator: str) -> None:
    """No two cases of a task are the same kernel file, and none but one is the naive kernel."""
    for dtype in ("fp32", "fp64"):
        ids = [case.kernel().id for case in cases(operator) if case.dtype == dtype]
        assert len(ids) == len(set(ids))
