"""Finds operators by name or folder, and holds their Python half: reference, library call, inputs."""

from __future__ import annotations

import hashlib
import importlib.util
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any

from operators.errors import OperatorError
from operators.expression import unknown_name
from operators.spec import Operator, read_operator

ROOT = Path(__file__).parent


@lru_cache
def folders() -> Mapping[str, Path]:
    """The operators that come with the package: name and folder."""
    return {path.parent.name: path.parent for path in sorted(ROOT.glob("*/*/operator.toml"))}


@lru_cache
def load(name_or_folder: str) -> Operator:
    """The operator called so, or the one in that folder (anything with a `/`, or `.`).

    Raises OperatorError with one line that says what is wrong.
    """
    if "/" in name_or_folder or name_or_folder.startswith("."):
        return read_operator(Path(name_or_folder).expanduser().resolve())
    folder = folders().get(name_or_folder)
    if folder is None:
        raise OperatorError(unknown_name(name_or_folder, folders()).replace("name", "operator", 1))
    return read_operator(folder)


@dataclass(frozen=True)
class Functions:
    """What reference.py offers. Each function is called with the arguments it names, as pytest does with fixtures.

    Arguments are tensors (by name; the reference gets floating ones in fp64), scalars, dims, `outputs` of the
    reference (`magnitude` only), what `prepare` returned (`library` only), and `dtype`, `rng`, `family` (`inputs` only).
    """

    operator: Operator
    module: ModuleType

    def __post_init__(self) -> None:
        for required in ("reference",):
            if not hasattr(self.module, required):
                raise OperatorError(f"{self.module.__file__}: `def {required}(...)` is missing")

    def reference(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """fp64 torch tensors by output name."""
        return self._outputs("reference", values)

    def magnitude(self, values: Mapping[str, Any]) -> dict[str, Any] | None:
        """S of the error bound by output name, or None where the operator declares none."""
        return self._outputs("magnitude", values) if self.offers("magnitude") else None

    def library(self, values: Mapping[str, Any]) -> Any:
        """The vendor's call on the task's own dtype."""
        return self.call("library", values)

    def offers(self, name: str) -> bool:
        return callable(getattr(self.module, name, None))

    def call(self, name: str, values: Mapping[str, Any]) -> Any:
        """Call a function of reference.py with those of `values` that it names."""
        function, wanted = self._signature(name)
        missing = [argument for argument in wanted if argument not in values]
        if missing:
            problem = unknown_name(missing[0], values).replace("name", "argument", 1)
            raise OperatorError(f"{self.module.__file__}: {name}(): {problem}")
        return function(**{argument: values[argument] for argument in wanted})

    def _signature(self, name: str) -> tuple[Callable[..., Any], tuple[str, ...]]:
        function = getattr(self.module, name)
        return function, tuple(inspect.signature(function).parameters)

    def _outputs(self, name: str, values: Mapping[str, Any]) -> dict[str, Any]:
        result = self.call(name, values)
        outputs = [t.name for t in self.operator.outputs]
        if not isinstance(result, Mapping) and len(outputs) == 1:
            result = {outputs[0]: result}
        if not isinstance(result, Mapping) or set(result) != set(outputs):
            raise OperatorError(f"{self.module.__file__}: {name}() must return {', '.join(outputs)} by name")
        return dict(result)


@lru_cache
def functions(operator_folder: Path) -> Functions:
    """Import reference.py of an operator's folder; this imports torch. Raises OperatorError."""
    path = operator_folder / "reference.py"
    digest = hashlib.sha256(str(path).encode()).hexdigest()[:12]
    spec = importlib.util.spec_from_file_location(f"_operator_{digest}", path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except FileNotFoundError:
        raise OperatorError(f"{path}: no such file; reference.py defines reference(...) in fp64 torch") from None
    except Exception as error:  # the border to the user's own Python
        raise OperatorError(f"{path}: cannot be imported: {type(error).__name__}: {error}") from error
    return Functions(read_operator(operator_folder), module)
