"""Libraries' calls for a correlation of one channel, for which cuDNN was not made."""

from typing import Any

import scipy.ndimage
import scipy.signal
import torch
from torch import Tensor

from operators.libraries import NARROW, call, own


def wide(x: Tensor, w: Tensor) -> Tensor:
    return torch.nn.functional.conv2d(x.float()[None, None], w.float()[None, None])[0, 0].to(x.dtype)


def tried(x: Tensor, w: Tensor) -> Tensor:
    return _fastest(x[None, None], w[None, None])


def channels_last(x: Tensor, w: Tensor) -> Tensor:
    """The one channel comes last by its stride; cuDNN has other kernels for that."""
    return _fastest(_last(x), _last(w))


def _fastest(x: Tensor, w: Tensor) -> Tensor:
    """The result of the fastest of cuDNN's kernels, which tries them before it is timed."""
    with torch.backends.cudnn.flags(enabled=True, benchmark=True, allow_tf32=False):
        return torch.nn.functional.conv2d(x, w)[0, 0]


def _last(plane: Tensor) -> Tensor:
    rows, cols = plane.shape
    return plane.as_strided((1, 1, rows, cols), (rows * cols, 1, cols, 1))


def inner(y: Any, w: Any) -> Any:
    """The part of a filtered plane where all of the window lies within."""
    rows, cols = (size // 2 for size in w.shape)
    return y[rows : rows + y.shape[0] - w.shape[0] + 1, cols : cols + y.shape[1] - w.shape[1] + 1]


def cupy_direct(x: Any, w: Any) -> Any:
    from cupyx.scipy.signal import correlate2d

    return correlate2d(x, w, mode="valid")


def cupy_filter(x: Any, w: Any) -> Any:
    from cupyx.scipy.ndimage import correlate

    return inner(correlate(x, w, mode="constant"), w)


def cupy_transform(x: Any, w: Any) -> Any:
    from cupyx.scipy.signal import fftconvolve

    return fftconvolve(x, w[::-1, ::-1], mode="valid")


LIBRARIES = (
    own("torch.nn.functional.conv2d"),
    call("torch.nn.functional.conv2d (cuDNN's fastest)", tried, targets=("cuda",)),
    call("torch.nn.functional.conv2d (channels last)", channels_last, targets=("cuda",)),
    call("torch.nn.functional.conv2d (fp32)", wide, composed=True, targets=("cuda",), dtypes=NARROW),
    call("cupyx.scipy.signal.correlate2d", cupy_direct),
    call("cupyx.scipy.ndimage.correlate", cupy_filter),
    call("cupyx.scipy.signal.fftconvolve", cupy_transform),
    call("scipy.ndimage.correlate", lambda x, w: inner(scipy.ndimage.correlate(x, w, mode="constant"), w)),
    call("scipy.signal.oaconvolve", lambda x, w: scipy.signal.oaconvolve(x, w[::-1, ::-1], mode="valid")),
)
