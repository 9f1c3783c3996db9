"""Errors a user can cure, each of them one clear line."""

from __future__ import annotations

from pathlib import Path


class UserError(Exception):
    """Something the user gave us is wrong; the text is one line: where, what is wrong, what would be right."""


class DeviceError(UserError):
    """A device that kernels run on is not there, or has failed; another one may still work."""


class OperatorError(UserError):
    """An operator folder is missing something or contradicts itself."""


class PlanError(UserError):
    """The header of a kernel file cannot be used.

    A kernel that raises this is data (`Evaluation` status `invalid`), not a failure of the engine.
    """

    def __init__(self, message: str, *, line: int | None = None, source: str | Path | None = None) -> None:
        self.message = message
        self.line = line
        self.source = str(source) if source is not None else None
        where = ":".join(str(part) for part in (self.source, line and f"line {line}") if part)
        super().__init__(f"{where}: {message}" if where else message)
