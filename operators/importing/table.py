"""The core ATen operators that graphs may call."""

OPERATORS: dict[str, object] = {}
