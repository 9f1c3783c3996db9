"""The kernel against the fp64 reference: `python -m pytest test_kernel.py`, or `python test_kernel.py`.

cases.npz holds inputs of several shapes, odd ones among them, what the operator's reference (operator/reference.py)
computed of them in fp64, and the error that is allowed in each element, as of kernel-evo's error analysis.
"""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

FOLDER = Path(__file__).resolve().parent
sys.path.insert(0, str(FOLDER.parent))
kernel = importlib.import_module(FOLDER.name).load()
CASES = np.load(FOLDER / "cases.npz")
INDEX: list[dict[str, Any]] = json.loads(str(CASES["index"]))


def arrays_of(case: dict[str, Any]) -> list[Any]:
    """The inputs of a case, on the GPU where the kernel runs there."""
    gpu = kernel.package.data["target"] == "cuda"
    try:
        import torch
    except ImportError:
        if not gpu:
            return [_aligned(CASES[f"{case['key']}/in/{name}"]) for name in case["inputs"]]
        import cupy

        return [cupy.asarray(CASES[f"{case['key']}/in/{name}"]) for name in case["inputs"]]
    made = []
    for name, dtype in case["inputs"].items():
        tensor = torch.from_numpy(CASES[f"{case['key']}/in/{name}"].copy())
        tensor = tensor.view(torch.bfloat16) if dtype == "bf16" else tensor
        made.append(tensor.to("cuda" if gpu else "cpu"))
    return made


def _aligned(values: Any) -> Any:
    memory = np.empty(values.nbytes + 64, dtype=np.uint8)
    begin = -memory.ctypes.data % 64
    copy = memory[begin : begin + values.nbytes].view(values.dtype).reshape(values.shape)
    copy[...] = values
    return copy


def numbers(array: Any) -> Any:
    """An output as numpy has it, in fp64."""
    if hasattr(array, "detach"):
        return array.detach().double().cpu().numpy().reshape(-1)
    return np.asarray(array.get() if hasattr(array, "get") else array, dtype=np.float64).reshape(-1)


def words(array: Any) -> Any:
    """An output's bits, as numbers of 32 of them at most."""
    if hasattr(array, "detach"):
        import torch

        array = array.detach().cpu().reshape(-1).view(torch.uint8).numpy().view(f"i{min(array.element_size(), 4)}")
    else:
        array = np.asarray(array.get() if hasattr(array, "get") else array).reshape(-1)
        array = array.view(f"i{min(array.itemsize, 4)}")
    return array.astype(np.float64)


def worst(case: dict[str, Any]) -> float:
    """The largest error of a case as a multiple of what is allowed."""
    found = kernel(*arrays_of(case), **case["dims"])
    largest = 0.0
    for name, output in zip(case["outputs"], found if isinstance(found, tuple) else (found,), strict=True):
        y = (words if case["bits"] else numbers)(output)
        right, allowed = CASES[f"{case['key']}/out/{name}"], CASES[f"{case['key']}/allowed/{name}"]
        assert y.shape == right.shape, f"{case['name']}: {name} has {y.size} elements, not {right.size}"
        with np.errstate(invalid="ignore", divide="ignore"):
            same = (y == right) | (np.isnan(y) & np.isnan(right))
            ratio = np.where(same, 0.0, np.abs(y - right) / allowed)
        ratio = np.where(np.isnan(ratio), np.inf, ratio)
        largest = max(largest, float(ratio.max(initial=0.0)))
    return largest


def test_every_element_is_within_its_bound() -> None:
    assert INDEX
    for case in INDEX:
        assert (found := worst(case)) <= 1, f"{case['name']}: an error of {found:.3g} times what is allowed"


if __name__ == "__main__":
    for each in INDEX:
        print(f"{each['name']}: worst error {worst(each):.3g} of what is allowed")
    test_every_element_is_within_its_bound()
