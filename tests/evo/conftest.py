"""What tests of the engine share."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="module", autouse=True)
def quickly_made(made_once: None) -> None:
    """They make hundreds of runs, and how a database is made is for tests/store."""
