"""The operator of operators/README.md is complete, and its table lists what there is."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from fitness.oracle.bounds import judge
from fitness.oracle.verify import Oracle
from operators.catalog import folders, functions, load
from operators.definition.spec import Operator
from tests.operators.running import Runner

README = Path(__file__).parents[2] / "operators/README.md"
BLOCK = re.compile(r"```(?:toml|python|cpp)\n(?:#|//) (softplus/\S+)\n(.*?)```", re.DOTALL)


@pytest.fixture
def example(tmp_path: Path) -> Operator:
    found = BLOCK.findall(README.read_text(encoding="utf-8"))
    assert [name for name, _ in found] == ["softplus/operator.toml", "softplus/reference.py", "softplus/naive.cpp"]
    assert sum(text.count("\n") for _, text in found) < 40
    for name, text in found:
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return load(str(tmp_path / "softplus"))


@pytest.mark.parametrize("dtype", ["fp32", "fp64"])
def test_the_example_is_right_about_itself(example: Operator, dtype: str, tmp_path: Path) -> None:
    oracle, runner = Oracle(example, functions(example.folder), dtype), Runner(tmp_path)
    for seed, workload in enumerate(example.hidden):
        family = oracle.families[seed % len(oracle.families)]
        case = oracle.case(workload, family, np.random.default_rng(seed), at_end=False)
        found = runner.run(example, case.inputs, dtype)["y"].double().numpy()
        assert judge(found, case.expected["y"], case.allowed["y"]).max_ratio <= 1, (workload.name, family)
        assert judge(0 * found, case.expected["y"], case.allowed["y"]).max_ratio > 1


def test_the_table_lists_every_operator_of_every_family() -> None:
    rows = re.findall(r"^\| (\w+) \| ([a-z0-9_, ]+) \|$", README.read_text(encoding="utf-8"), re.MULTILINE)
    listed = {family: names.split(", ") for family, names in rows}
    families: dict[str, list[str]] = {}
    for name in sorted(folders()):
        families.setdefault(load(name).family, []).append(name)
    assert {family: listed.get(family) for family in families} == families
