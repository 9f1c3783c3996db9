"""A mode of torch's dispatcher that does without torch's compiler."""

from __future__ import annotations

from torch.utils._python_dispatch import TorchDispatchMode


class DispatchMode(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """A mode that torch does not load its compiler for, which takes a second, to have it leave the mode alone."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False
