"""cuBLAS's products that torch does not offer, by nvmath-python, of the extra `rivals`.

torch takes the algorithm that cuBLAS guesses to be the fastest, and knows general matrices alone. Here cuBLASLt's
algorithms are timed and the fastest is called, and cuBLAS is told which matrix is triangular or symmetric.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from operators.libraries import LibraryCall, ready, rival_module, with_arguments_of

ALGORITHMS = 32
"""Most algorithms that cuBLASLt is asked for; it names those first that it believes to be faster."""
WORKSPACE = "64 MiB"
"""Most memory that an algorithm may need: twice what cuBLAS takes on a Hopper unasked."""
ROUNDS = 4
"""Calls of each algorithm, the first of which counts for nothing if another one was faster."""
AHEAD_CYCLES = 1_000_000
"""Cycles that the device waits before the clock starts, while Python queues the call."""
Structure = Literal["lower", "upper", "symmetric"]
_cuda: Any = torch.cuda

_fastest: dict[tuple[object, ...], int] = {}
"""Places of the fastest algorithms in cuBLASLt's order, by all that decides about it: each is found once a process."""


class TunedProduct:
    """a @ b by the fastest of cuBLASLt's algorithms, ready to be called. It raises what nvmath-python raises."""

    def __init__(self, a: Tensor, b: Tensor, shape: Sequence[int] = ()) -> None:
        """`a` (..., m, k) and `b` (..., k, n) have one dtype, and may be transposed views; the result gets a `shape`
        where it is to have another than theirs."""
        self._shape = tuple(shape)
        self._made = rival_module("nvmath.linalg.advanced").Matmul(a, b, options={"memory_limit": WORKSPACE})
        self._algorithms: Sequence[Any] = self._made.plan(preferences={"limit": ALGORITHMS})
        key = a.dtype, a.shape, a.stride(), b.shape, b.stride(), a.device, len(self._algorithms)
        if key not in _fastest:
            _fastest[key] = self._found(a.device)
        self._algorithm = self._algorithms[_fastest[key]]

    def __call__(self) -> Tensor:
        """Return the product, in new memory."""
        found: Tensor = self._made.execute(algorithm=self._algorithm)
        return found.view(self._shape) if self._shape else found

    def _found(self, device: torch.device) -> int:
        size = 2 * _cuda.get_device_properties(device).L2_cache_size
        caches = torch.empty(size, dtype=torch.uint8, device=device)
        times = [min(self._time_ms(each, caches) for _ in range(ROUNDS)) for each in self._algorithms]
        return times.index(min(times))

    def _time_ms(self, algorithm: Any, caches: Tensor) -> float:
        """The time of one call from cold caches; infinite where cuBLASLt refuses what it named."""
        begin, end = (_cuda.Event(enable_timing=True) for _ in range(2))
        caches.zero_()
        _cuda._sleep(AHEAD_CYCLES)
        begin.record()
        try:
            self._made.execute(algorithm=algorithm)
        except Exception:  # noqa: BLE001 the border to a package with errors of its own
            return math.inf
        end.record()
        end.synchronize()
        return float(begin.elapsed_time(end))


def tuned_product(operands: Callable[..., tuple[Any, ...]]) -> LibraryCall:
    """Return the call of `TunedProduct`, whose arguments `operands` makes of the operator's tensors, as their views."""
    name = "nvmath.linalg.advanced.Matmul (fastest algorithm)"
    return ready(name, with_arguments_of(operands, TunedProduct), targets=("cuda",))


def structured_product(structure: Structure) -> LibraryCall:
    """Return cuBLAS's trmm or symm for the operator's `a` @ `b`, of which `a` is of this structure."""
    name = "symm" if structure == "symmetric" else "trmm"

    def prepare(a: Tensor, b: Tensor) -> Any:
        linalg = rival_module("nvmath.linalg")
        if structure == "symmetric":
            known = linalg.SymmetricMatrixQualifier.create()
        else:
            half = linalg.FillMode.LOWER if structure == "lower" else linalg.FillMode.UPPER
            known = linalg.TriangularMatrixQualifier.create(uplo=half)
        qualifiers = np.full(2, linalg.GeneralMatrixQualifier.create(), dtype=linalg.matrix_qualifiers_dtype)
        qualifiers[0] = known
        made = linalg.Matmul(a, b, qualifiers=qualifiers)
        made.plan()
        return made.execute

    return ready(f"nvmath.linalg.Matmul ({name})", prepare, targets=("cuda",), dtypes=("fp32", "fp64"))
