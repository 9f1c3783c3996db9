"""Classes that are named in settings: the product's own by a short name, a user's own as `module:Class`."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from operators.errors import UserError, machine_error, unknown


def named_class(what: str, name: str, known: Mapping[str, str]) -> Any:
    """Return the class of this name: one of `known` (name to `module:Class`), or the `module:Class` it is itself.

    A user's own module is looked for in the current folder too, as other tools that take such names do. `what` says
    what it is for, such as `strategy`. It raises UserError where there is no such class, and MachineError where no
    memory is left for it.
    """
    if ":" not in name and name not in known:
        raise UserError(f"{unknown(what, name, known)}; or name your own as module:Class")
    module, _, attribute = known.get(name, name).partition(":")
    if name not in known and (here := str(Path.cwd())) not in sys.path:
        sys.path.insert(0, here)
    try:
        found = getattr(import_module(module), attribute, None)
    except ImportError as error:
        if fault := machine_error(error):
            raise fault from error
        raise UserError(f"{what} {name}: module {module} cannot be imported: {error}") from error
    except Exception as error:
        if name in known:
            raise
        said = f"{type(error).__name__}: {error}"
        raise UserError(f"{what} {name}: module {module} cannot be imported: {said}") from error
    if not isinstance(found, type):
        raise UserError(f"{what} {name}: module {module} has no class {attribute or 'of that name'}")
    return found
