"""Library calls of the stencils that mix a point with its neighbours along every axis.

No library keeps the border; these filter all and put it back. The filter is made before.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.ndimage
import torch
from torch import Tensor

from operators.libraries import LibraryCall, call, own


def library_calls(axes: int) -> tuple[LibraryCall, ...]:
    """The calls for so many axes, 2 or 3."""
    convolve = {2: torch.nn.functional.conv2d, 3: torch.nn.functional.conv3d}[axes]
    inside = (slice(1, -1),) * axes

    def kernel(rate: Tensor) -> Tensor:
        """The neighbours' share of the result, and the rest."""
        share = rate.to(torch.promote_types(rate.dtype, torch.float32))
        found = share.new_zeros((3,) * axes)
        for axis in range(axes):
            for end in (0, 2):
                found[tuple(end if a == axis else 1 for a in range(axes))] = share[0]
        found[(1,) * axes] = 1 - 2 * axes * share[0]
        return found

    def conv(u: Tensor, prepared: Tensor) -> Tensor:
        v = u.clone()
        v[inside] = convolve(u.to(prepared.dtype)[None, None], prepared[None, None])[0, 0]
        return v

    def filters(rate: Any) -> Any:
        """On the CPU, from where both libraries take them."""
        return np.asarray(kernel(torch.tensor([float(rate[0])], dtype=torch.float64)), dtype=rate.dtype)

    def on_gpu(rate: Any) -> Any:
        import cupy

        return cupy.asarray(filters(rate))

    def bordered(v: Any, u: Any) -> Any:
        for axis in range(axes):
            for end in (0, -1):
                edge = (slice(None),) * axis + (end,)
                v[edge] = u[edge]
        return v

    def cupy_filter(u: Any, prepared: Any) -> Any:
        from cupyx.scipy.ndimage import correlate

        return bordered(correlate(u, prepared, mode="nearest"), u)

    def scipy_filter(u: Any, prepared: Any) -> Any:
        return bordered(scipy.ndimage.correlate(u, prepared, mode="nearest"), u)

    return (
        own("torch.add", composed=True),
        call(f"torch.nn.functional.conv{axes}d", conv, prepare=kernel, composed=True),
        call("cupyx.scipy.ndimage.correlate", cupy_filter, prepare=on_gpu, composed=True, dtypes=("fp32", "fp64")),
        call("scipy.ndimage.correlate", scipy_filter, prepare=filters, composed=True),
    )
