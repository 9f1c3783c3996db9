"""An operator's signature as plain data, and back: what a plan is read and resolved against, without the folder.

Packages of kernels carry this module as it stands (`evo.packaging.package`).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from operators.definition.domain import conditions
from operators.definition.spec import Operator, Scalar, Tensor, Tolerance
from operators.expression import parse


def signature(operator: Operator) -> dict[str, Any]:
    """Return what `operator_of` needs, and the conditions on sizes that kernels are judged for, in types that JSON
    has."""
    return {
        "name": operator.name,
        "formula": operator.formula,
        "dims": list(operator.dims),
        "conditions": list(conditions(operator)),
        "derived": {name: expression.text for name, expression in operator.derived.items()},
        "data_dims": dict(operator.data_dims),
        "tensors": [
            {"name": t.name, "role": t.role, "dtype": t.dtype, "shape": [axis.text for axis in t.shape]}
            for t in operator.tensors
        ],
        "scalars": [{"name": s.name, "dtype": s.dtype, "value": s.value} for s in operator.scalars],
    }


def operator_of(data: Mapping[str, Any]) -> Operator:
    """Return the operator of a signature. It has no workloads, costs or tolerance, which no plan asks for."""
    known, derived = {*data["dims"], *data["data_dims"]}, {}
    for name, text in data["derived"].items():
        derived[name] = parse(text, known)
        known.add(name)
    nothing = parse(0, ())
    return Operator(
        name=data["name"],
        family="",
        formula=data["formula"],
        dims=tuple(data["dims"]),
        derived=derived,
        data_dims=dict(data["data_dims"]),
        tensors=tuple(
            Tensor(t["name"], t["role"], t["dtype"], tuple(parse(axis, known) for axis in t["shape"]), None)
            for t in data["tensors"]
        ),
        scalars=tuple(Scalar(s["name"], s["dtype"], s["value"]) for s in data["scalars"]),
        dtypes={},
        workloads=(),
        hidden=(),
        flops=nothing,
        min_flops=nothing,
        min_bytes=nothing,
        bytes=nothing,
        tolerance=Tolerance("exact", nothing),
        folder=Path(),
    )
