"""The ATen operators that kernels are generated for: by name, the function that writes an operator's loops.

An entry gets the writer, the node and all arguments in the order of the operator's schema, defaults filled in, with
arrays in place of tensors; it returns the arrays of the node's outputs, None for those that nothing uses. It raises
NotImplementedError, with the reason in words, for arguments that it has no loops for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from operators.importing.graphs import moves, pointwise, reductions

OPERATORS: Mapping[str, Callable[..., Any]] = MappingProxyType(pointwise.ENTRIES | reductions.ENTRIES | moves.ENTRIES)
