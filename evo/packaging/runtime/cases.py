"""Cases of a package's test: inputs, the reference's fp64 answers, and the error allowed in each element."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch

from fitness.oracle.cases import Case
from fitness.oracle.verify import Oracle
from operators.catalog import functions
from operators.definition.spec import Operator, Workload
from operators.dtypes import resolve_dtype
from operators.plan.reading import Plan

FAMILIES = ("nominal", "scaled", "mixture")
MOST_ELEMENTS = 1 << 15
"""The most elements of all tensors of one case; larger hidden shapes are left out."""
MOST_CASES = 16


def cases(operator: Operator, plan: Plan, dtype: str, values: Mapping[str, int], facts: Mapping[str, int]) -> bytes:
    """Return cases.npz, made of the operator's hidden shapes that the plan supports."""
    arrays: dict[str, Any] = {}
    index: list[dict[str, Any]] = []
    for number, case in enumerate(_cases(operator, plan, dtype, values, facts)):
        key = str(number)
        said = {
            "key": key,
            "name": f"{case.workload.name} ({case.family} inputs)",
            "dims": {n: int(case.dims[n]) for n in (*operator.dims, *operator.data_dims)},
            "inputs": {t.name: resolve_dtype(t.dtype, dtype).name for t in operator.inputs},
            "outputs": [tensor.name for tensor in operator.outputs],
            "bits": operator.tolerance.bound == "bits",
        }
        index.append(said)
        for name, tensor in case.inputs.tensors.items():
            bits = tensor.view(torch.uint16) if tensor.dtype == torch.bfloat16 else tensor
            arrays[f"{key}/in/{name}"] = bits.numpy()
        for name in case.expected:
            arrays[f"{key}/out/{name}"] = np.asarray(case.expected[name], dtype=np.float64)
            arrays[f"{key}/allowed/{name}"] = np.asarray(case.allowed[name], dtype=np.float64)
    file = io.BytesIO()
    np.savez_compressed(file, index=np.array(json.dumps(index)), **arrays)
    return file.getvalue()


def _cases(
    operator: Operator, plan: Plan, dtype: str, values: Mapping[str, int], facts: Mapping[str, int]
) -> Iterator[Case]:
    oracle, rng, made = Oracle(operator, functions(operator.folder), dtype), np.random.default_rng(0), 0
    families = [family for family in FAMILIES if family in oracle.families]
    for family in families:
        for workload in operator.hidden:
            if made < MOST_CASES and _elements(operator, workload) <= MOST_ELEMENTS:
                case = oracle.case(workload, family, rng, at_end=False)
                if plan.supports(operator, case.dims, values, facts, dtype):
                    made += 1
                    yield case


def _elements(operator: Operator, workload: Workload) -> int:
    """The elements of the tensors whose shapes the workload tells by itself."""
    env = operator.environment(workload.dims) | dict.fromkeys(operator.data_dims, 1)
    return sum(int(np.prod(tensor.sizes(env))) for tensor in operator.tensors)
