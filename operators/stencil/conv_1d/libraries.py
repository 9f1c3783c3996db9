"""Libraries' calls for a correlation of one channel, for which cuDNN was not made."""

from typing import Any

import numpy as np
import scipy.ndimage
import scipy.signal
import torch
from torch import Tensor

from operators.libraries import NARROW, call, own


def wide(x: Tensor, w: Tensor) -> Tensor:
    return torch.nn.functional.conv1d(x.float()[None, None], w.float()[None, None])[0, 0].to(x.dtype)


def tried(x: Tensor, w: Tensor) -> Tensor:
    """The result of the fastest of cuDNN's kernels, which tries them before it is timed."""
    with torch.backends.cudnn.flags(enabled=True, benchmark=True, allow_tf32=False):
        return torch.nn.functional.conv1d(x[None, None], w[None, None])[0, 0]


def cupy_direct(x: Any, w: Any) -> Any:
    from cupyx.scipy.signal import correlate

    return correlate(x, w, mode="valid", method="direct")


def cupy_filter(x: Any, w: Any, taps: int, results: int) -> Any:
    from cupyx.scipy.ndimage import correlate1d

    return correlate1d(x, w, mode="constant")[taps // 2 : taps // 2 + results]


def cupy_blocks(x: Any, w: Any) -> Any:
    from cupyx.scipy.signal import oaconvolve

    return oaconvolve(x, w[::-1], mode="valid")


def cupy_whole(x: Any, w: Any) -> Any:
    from cupyx.scipy.signal import fftconvolve

    return fftconvolve(x, w[::-1], mode="valid")


def scipy_filter(x: Any, w: Any, taps: int, results: int) -> Any:
    return scipy.ndimage.correlate1d(x, w, mode="constant")[taps // 2 : taps // 2 + results]


LIBRARIES = (
    own("torch.nn.functional.conv1d"),
    call("torch.nn.functional.conv1d (cuDNN's fastest)", tried, targets=("cuda",)),
    call("torch.nn.functional.conv1d (fp32)", wide, composed=True, targets=("cuda",), dtypes=NARROW),
    call("cupyx.scipy.signal.correlate", cupy_direct),
    call("cupyx.scipy.ndimage.correlate1d", cupy_filter),
    call("cupyx.scipy.signal.oaconvolve", cupy_blocks),
    call("cupyx.scipy.signal.fftconvolve", cupy_whole),
    call("numpy.correlate", lambda x, w: np.correlate(x, w, "valid")),
    call("scipy.ndimage.correlate1d", scipy_filter),
    call("scipy.signal.oaconvolve", lambda x, w: scipy.signal.oaconvolve(x, w[::-1], mode="valid")),
)
