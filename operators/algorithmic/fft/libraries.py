"""Libraries' calls for the Fourier transform of planes of real and imaginary parts.

Libraries have them interleaved. On a GPU one candidate is given what it takes and returns planes as views, so that the
transform alone is timed; on a CPU that would leave its input in the caches.
"""

from typing import Any

import scipy.fft
import torch
from torch import Tensor

from operators.libraries import call, own


def interleaved(x_re: Tensor, x_im: Tensor) -> Tensor:
    wide = torch.promote_types(x_re.dtype, torch.float32)
    return torch.complex(x_re.to(wide), x_im.to(wide))


def torchs(prepared: Tensor) -> dict[str, Tensor]:
    y = torch.fft.fft(prepared)
    return {"y_re": y.real, "y_im": y.imag}


def scipys(x_re: Any, x_im: Any) -> dict[str, Any]:
    y = scipy.fft.fft(x_re + 1j * x_im, workers=-1)
    return {"y_re": y.real, "y_im": y.imag}


def cupys_input(x_re: Any, x_im: Any) -> Any:
    return x_re + 1j * x_im


def cupys(prepared: Any) -> dict[str, Any]:
    from cupyx.scipy.fft import fft

    y = fft(prepared)
    return {"y_re": y.real.copy(), "y_im": y.imag.copy()}


LIBRARIES = (
    own("torch.fft.fft", composed=True),
    call("torch.fft.fft (interleaved)", torchs, prepare=interleaved, targets=("cuda",)),
    call("scipy.fft.fft", scipys, composed=True),
    call("cupyx.scipy.fft.fft", cupys, prepare=cupys_input, composed=True, dtypes=("fp32", "fp64")),
)
