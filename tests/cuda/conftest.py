"""Fixtures that tests of the cuda target share."""

from __future__ import annotations

import pytest

from fitness.cuda.compile import nvrtc
from operators.errors import UserError


@pytest.fixture(scope="module")
def headers() -> None:
    """It skips a module where the CUDA headers are not installed."""
    try:
        nvrtc.include_folders()
    except UserError as error:
        pytest.skip(str(error))
