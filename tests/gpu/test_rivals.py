"""The calls of the extra `rivals`, made on a GPU: where their package is installed they have times, or a reason."""

from __future__ import annotations

from pathlib import Path

import pytest

from fitness.install import installed
from fitness.judging import library
from fitness.judging.pipeline import Pipeline
from fitness.targets import fitness
from operators.catalog import declared_libraries, folders, load
from operators.definition.spec import Task
from operators.libraries import RIVALS

pytestmark = pytest.mark.gpu
TASKS = [
    (name, dtype)
    for name, folder in sorted(folders().items())
    for dtype in ("fp32", "bf16")
    if any(each.rival and each.serves("cuda", dtype) for each in declared_libraries(folder))
]


@pytest.mark.parametrize(("name", "dtype"), TASKS)
def test_each_call_is_timed_or_wrong(name: str, dtype: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library, "_folder", lambda: tmp_path)
    stage = fitness(load(name), Task(name, dtype, "cuda"), workload_set="cpu", folder=tmp_path)
    assert isinstance(stage, Pipeline)
    try:
        tried = {trial.name: trial for trial in stage.bench.library.choice().tried}
    finally:
        stage.close()
    first = next(iter(tried.values()))
    assert first.us, first.left_out
    for each in declared_libraries(load(name).folder):
        if not each.rival or not each.serves("cuda", dtype):
            continue
        if not installed(RIVALS[each.rival]):
            assert each.name not in tried
            continue
        trial = tried[each.name]
        assert set(trial.us) == set(first.us) or "out of bounds" in trial.lack, f"{trial.name}: {trial.left_out}"
