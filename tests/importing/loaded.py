"""All that a look at a problem imports, loaded once in a process whose forks look."""

from __future__ import annotations

import os
from collections.abc import Mapping

# These are what the others import when they are first called.
import sympy.tensor.tensor  # noqa: F401
import torch._dynamo.config
import torch.export._trace  # noqa: F401

from operators.importing import looking


def look(place: str, environment: Mapping[str, str]) -> None:
    """Look at the problem in a folder, as a jailed process does."""
    os.chdir(place)
    os.environ.update(environment)
    looking.main()
