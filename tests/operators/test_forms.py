"""Forms that operators are `like`: what the operator's own file says takes the form's place."""

from __future__ import annotations

from pathlib import Path

import pytest

from operators.errors import OperatorError
from operators.spec import read_operator

OWN = """
name = "mine"
like = "elementwise"
formula = "y[i] = x[i]"
cost = { flops = "n", min_flops = "n" }

[[workload]]
set = "cpu"
dims = { n = 7 }
"""


def test_tables_are_joined_key_by_key_and_workloads_set_by_set(tmp_path: Path) -> None:
    (tmp_path / "operator.toml").write_text(OWN)
    operator = read_operator(tmp_path)
    assert [w.dims["n"] for w in operator.workload_set("cpu")] == [7]
    assert len(operator.workload_set("realistic")) == 3
    assert (operator.flops.text, operator.min_bytes.text) == ("n", "2 * sizeof_T * n")
    assert [t.name for t in operator.tensors] == ["x", "y"]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"elementwise"', '"elementwize"', "`like`: 'elementwize' is no form; there are elementwise, rows"),
        ('"elementwise"', "3", "`like`: 3 is no form"),
        ("[[workload]]", "[workload]", "`workload`"),
        ('set = "cpu"', 'set = ["cpu"]', "`workload[0].set`"),
    ],
)
def test_what_is_wrong_is_one_line(tmp_path: Path, old: str, new: str, message: str) -> None:
    (tmp_path / "operator.toml").write_text(OWN.replace(old, new))
    with pytest.raises(OperatorError) as caught:
        read_operator(tmp_path)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
