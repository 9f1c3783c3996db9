"""Draws the inputs of checks: several families, each from a generator whose seed the candidate never sees."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from operators.catalog import Functions
from operators.dtypes import DType, resolve_dtype
from operators.errors import OperatorError
from operators.spec import Distribution, Operator

FAMILIES = ("nominal", "scaled", "integers", "structured")
"""`scaled`: rows of very different size; `integers`: exact small integers; `structured`: constant, one-hot, sorted."""

TORCH_DTYPES = {
    "fp64": torch.float64, "fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16,
    "int64": torch.int64, "int32": torch.int32, "int8": torch.int8, "uint8": torch.uint8,
}  # fmt: skip


@dataclass(frozen=True)
class Inputs:
    """One drawn set: every in and inout tensor by name, and the dims with what only the data tells."""

    tensors: Mapping[str, torch.Tensor]
    dims: Mapping[str, int]
    """Declared, derived and data-dependent."""


def draw(
    operator: Operator,
    functions: Functions,
    *,
    dims: Mapping[str, int],
    dtype: str,
    family: str,
    rng: np.random.Generator,
) -> Inputs:
    """Inputs for one setting of the dims. Raises OperatorError when reference.py returns something unusable."""
    env = operator.environment(dims)
    made: dict[str, torch.Tensor] = {}
    if functions.offers("inputs"):
        extra = {"dtype": resolve_dtype("T", dtype), "rng": rng, "family": family}
        made = dict(functions.call("inputs", env | extra))
    if operator.data_dims:
        env |= {name: int(value) for name, value in functions.call("data_dims", env | made).items()}
    for tensor in operator.inputs:
        element = resolve_dtype(tensor.dtype, dtype)
        shape = tensor.sizes(env)
        if tensor.name not in made:
            if tensor.distribution is None:
                raise OperatorError(
                    f"{operator.folder}/operator.toml: tensor `{tensor.name}` has no distribution and inputs() of "
                    "reference.py does not make it"
                )
            values = _values(tensor.distribution, shape, family if element.is_float else "nominal", rng)
            made[tensor.name] = torch.from_numpy(values).to(TORCH_DTYPES[element.name])
        _check(operator, tensor.name, made[tensor.name], element, shape)
    return Inputs({t.name: made[t.name].contiguous() for t in operator.inputs}, env)


def _check(operator: Operator, name: str, value: Any, element: DType, shape: tuple[int, ...]) -> None:
    if not isinstance(value, torch.Tensor) or value.dtype != TORCH_DTYPES[element.name] or tuple(value.shape) != shape:
        found = f"{value.dtype} {list(value.shape)}" if isinstance(value, torch.Tensor) else type(value).__name__
        raise OperatorError(
            f"{operator.folder}/reference.py: inputs() made `{name}` as {found}, "
            f"it must be {element.name} {list(shape)}"
        )


def _values(law: Distribution, shape: tuple[int, ...], family: str, rng: np.random.Generator) -> np.ndarray:
    if family == "integers":
        low, high = math.ceil(law.a), math.floor(law.b)
        if law.kind != "normal" and low <= high:
            return rng.integers(low, min(high, low + 4), size=shape, endpoint=True).astype(np.float64)
    values = _nominal(law, shape, rng)
    if family == "scaled" and values.ndim:
        rows = (shape[0],) + (1,) * (len(shape) - 1)
        return values * np.exp2(rng.uniform(-12, 12, size=rows))
    if family == "structured" and values.size:
        return _structured(values, rng)
    return values


def _nominal(law: Distribution, shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    match law.kind:
        case "uniform":
            # fp32 draws are twice as fast, and every value is rounded to the tensor's type anyway.
            return (law.a + (law.b - law.a) * rng.random(shape, dtype=np.float32)).astype(np.float32)
        case "normal":
            return law.a + law.b * rng.standard_normal(shape)
        case "integers":
            return rng.integers(int(law.a), int(law.b), size=shape, endpoint=True)


def _structured(values: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    match rng.integers(3):
        case 0:
            return np.full_like(values, values.flat[0])
        case 1:
            one_hot = np.zeros_like(values)
            if values.ndim > 1:
                rows = values.reshape(-1, values.shape[-1])
                hot = rng.integers(rows.shape[1], size=rows.shape[0])
                one_hot.reshape(rows.shape)[np.arange(rows.shape[0]), hot] = rows[np.arange(rows.shape[0]), hot]
            else:
                one_hot.flat[rng.integers(values.size)] = values.flat[0]
            return one_hot
        case _:
            return np.sort(values, axis=-1) if values.ndim else values
