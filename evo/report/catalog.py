"""Operators as rows."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from operators.spec import Operator


def listing(operators: Iterable[Operator]) -> list[dict[str, Any]]:
    """One row an operator."""
    return [
        {
            "operator": o.name,
            "family": o.family,
            "targets": ", ".join(f"{target}: {' '.join(dtypes)}" for target, dtypes in o.dtypes.items()),
            "formula": o.formula,
        }
        for o in operators
    ]


def one(operator: Operator) -> list[dict[str, str]]:
    """Everything about one operator, as property and value."""
    shapes = [(t.name, f"{t.role} {t.dtype} [{', '.join(axis.text for axis in t.shape)}]") for t in operator.tensors]
    sets = [(f"workloads {w.set}", f"{w.name}  {w.source}") for w in operator.workloads]
    rows = [
        ("name", operator.name),
        ("family", operator.family),
        ("formula", operator.formula),
        *shapes,
        *((s.name, f"scalar {s.dtype} = {s.value}") for s in operator.scalars),
        *((f"{name} (derived)", e.text) for name, e in operator.derived.items()),
        *((f"{name} (from the data)", meaning) for name, meaning in operator.data_dims.items()),
        ("flops", operator.flops.text),
        ("min_bytes", operator.min_bytes.text),
        ("tolerance", f"{operator.tolerance.bound}, K = {operator.tolerance.terms.text}"),
        *sets,
        ("hidden shapes", str(len(operator.hidden))),
        ("folder", str(operator.folder)),
    ]
    return [{"property": name, "value": value} for name, value in rows]
