"""Finds operators by name or folder, and holds their Python half: reference, library call, inputs."""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import inspect
import sys
import traceback
import warnings
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any

from operators.definition.reading import read_operator
from operators.definition.spec import Operator
from operators.errors import OperatorError, machine_error, unknown
from operators.files import python_fault, read_bytes
from operators.libraries import LIBRARIES, UNNAMED, LibraryCall, compiled, compiles, own

ROOT = Path(__file__).parent
FUNCTIONS: Mapping[str, str] = {
    "reference": "Gets floating tensors in fp64 and returns the outputs: one tensor, or tensors by name.",
    "magnitude": (
        "S of the error bound, returned like `reference`: how large the terms of each result are inside, |y| without "
        "it. May name `outputs`, those of the reference by name, and `dtype` (T). Needed where sums cancel, and for "
        "`exact_integers`."
    ),
    "library": (
        "The vendor's call, which kernels are compared with: gets tensors in the task's own dtype, and `prepared`, "
        "what `prepare` returned, if it names that."
    ),
    "prepare": "What `library` needs and is not timed, such as a vendor's matrix object.",
    "inputs": (
        "Returns by name the tensors that operator.toml gives no distribution. May name `dtype` (T), `rng` (numpy's "
        "Generator, the only randomness), `family` and `device`, where whole tensors are best drawn, see "
        "operators/drawing.py; and no tensors."
    ),
    "data_dims": (
        "Gets the tensors that `inputs` made and returns by name the dims that operator.toml lists in data_dims."
    ),
    "cancel": (
        "Changes drawn inputs so that the operator's sums cancel: pairs +x, -x and small terms, S / |y| >= 1000 for "
        "most outputs. Returns the changed tensors by name, in the task's dtype; may name `rng` and `dtype`. With it "
        "there is one more input family, `cancellation`."
    ),
    "faint": (
        "Changes drawn inputs so that small constants, such as an epsilon, decide results. Returns the changed tensors "
        "by name, in the task's dtype; may name `rng` and `dtype`. With it there is one more input family, `faint`."
    ),
    "relations": (
        "Returns a list of `operators.relations.Relation`: what a change of the inputs does to the outputs, which a "
        "new best must keep (permuted rows, shifts, linearity). Gets drawn tensors; may name `rng` and `dtype`."
    ),
}
"""Functions that reference.py may define. All of them may name dims, derived ones too, scalars and tensors as
arguments; tensors lie where answers are computed, on the GPU for the target cuda."""


@lru_cache
def folders() -> Mapping[str, Path]:
    """The operators that come with the package: name and folder."""
    return {path.parent.name: path.parent for path in sorted(ROOT.glob("*/*/operator.toml"))}


def of_family(family: str) -> list[str]:
    """Names of the package's operators of a family. Raises OperatorError with the families there are."""
    families = {path.parent.name for path in folders().values()}
    if family not in families:
        raise OperatorError(f"no operator of family {family}; there are {', '.join(sorted(families))}")
    return [name for name, path in folders().items() if path.parent.name == family]


def same_family(operator: Operator) -> list[str]:
    """Names of the package's operators of the same family as an operator, which may be a user's own."""
    return [name for name, path in folders().items() if path.parent.name == operator.family]


def load(name_or_folder: str) -> Operator:
    """The operator called so, or the one in that folder (anything with a `/`, or that starts with `.` or `~`).

    Reads a folder once in a process. Raises OperatorError with one line that says what is wrong.
    """
    if "/" in name_or_folder or name_or_folder.startswith((".", "~")):
        return _read(Path(name_or_folder).expanduser().resolve())
    folder = folders().get(name_or_folder)
    if folder is None:
        problem = unknown("operator", name_or_folder, folders())
        hint = f"; for the folder beside you write ./{name_or_folder}" if Path(name_or_folder).is_dir() else ""
        raise OperatorError(problem + hint)
    return _read(folder)


def load_among(name: str, places: Iterable[str]) -> Operator:
    """The operator called so among those at some places (names or folders, as a run's settings have them), or else the
    catalog's. It raises OperatorError."""
    for place in places:
        with suppress(OperatorError):  # one that is gone is another one
            if (operator := load(place)).name == name:
                return operator
    return load(name)


_read = lru_cache(read_operator)


@dataclass(frozen=True)
class Functions:
    """Those of `FUNCTIONS` that reference.py offers; each is called with the arguments it names, as pytest's fixtures
    are."""

    operator: Operator
    module: ModuleType

    def __post_init__(self) -> None:
        _check_needed(self.operator, Path(str(self.module.__file__)), self.offers)

    def reference(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """fp64 torch tensors by output name."""
        return self._outputs("reference", values)

    def magnitude(self, values: Mapping[str, Any]) -> dict[str, Any] | None:
        """S of the error bound by output name, or None where the operator declares none."""
        return self._outputs("magnitude", values) if self.offers("magnitude") else None

    def changed(self, name: str, values: Mapping[str, Any]) -> dict[str, Any]:
        """The tensors that `cancel` or `faint` changes, by name."""
        changed = self.call(name, values)
        drawn = [t.name for t in self.operator.inputs]
        if not isinstance(changed, Mapping) or not set(changed) <= set(drawn):
            found = ", ".join(map(str, changed)) if isinstance(changed, Mapping) else type(changed).__name__
            raise OperatorError(
                f"{self.module.__file__}: {name}() must return some of {', '.join(drawn)} by name, not {found}"
            )
        return dict(changed)

    def relations(self, values: Mapping[str, Any]) -> list[Any]:
        """The operator's `operators.relations.Relation`s on these inputs; none where it declares none."""
        return list(self.call("relations", values)) if self.offers("relations") else []

    def prepare(self, values: Mapping[str, Any]) -> Any:
        """The object that `library` wants as `prepared`; None where it wants none."""
        return self.call("prepare", values) if self.offers("prepare") else None

    def library(self, values: Mapping[str, Any]) -> Any:
        """The vendor's call on the task's own dtype."""
        return self.call("library", values)

    def libraries(self, target: str, dtype: str) -> list[LibraryCall]:
        """The calls that a task's kernels may be compared with, `library(...)` among them, in the order declared."""
        served = [each.of(dtype) for each in declared_libraries(self.operator.folder) if each.serves(target, dtype)]
        return served if self.offers("library") else [each for each in served if each.function]

    def bound(self, vendor: LibraryCall, values: Mapping[str, Any]) -> Callable[[], Any]:
        """Return the call on these values, prepared for, so that nothing but the call is left to be timed.

        What it raises is OperatorError, like all that preparing for it raises.
        """
        if vendor.function is None:
            prepared = self.prepare(values)
        else:
            prepared = self._bound(vendor.prepare, vendor.name, values)() if vendor.prepare else None
        function, name = (vendor.function, vendor.name) if vendor.function else (self.module.library, "library")
        if vendor.kind != "compiled":
            return self._bound(function, name, {**values, "prepared": prepared})
        made = self._bound(compiles(function), vendor.name, {**values, "prepared": prepared})
        with warnings.catch_warnings(action="ignore"):
            made()  # which compiles it for these shapes
        return made

    def offers(self, name: str) -> bool:
        """Whether reference.py defines the function `name`, one of `FUNCTIONS`."""
        assert name in FUNCTIONS, name
        return callable(getattr(self.module, name, None))

    def call(self, name: str, values: Mapping[str, Any]) -> Any:
        """Call a function of reference.py with those of `values` that it names.

        Raises OperatorError for others, and for all that the function raises itself.
        """
        if not self.offers(name):
            raise OperatorError(f"{self.module.__file__}: `def {name}(...)` is missing")
        return self._bound(getattr(self.module, name), name, values)()

    def _bound(self, function: Callable[..., Any], name: str, values: Mapping[str, Any]) -> Callable[[], Any]:
        """A function of the operator's Python with those of `values` that it names."""
        file = function.__code__.co_filename if inspect.isfunction(function) else str(self.module.__file__)
        arguments = {}
        for parameter in inspect.signature(function).parameters.values():
            if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
                raise OperatorError(f"{file}: {name}(): `{parameter}` has no name to be called by")
            if parameter.name in values:
                arguments[parameter.name] = values[parameter.name]
            elif parameter.default is parameter.empty:
                problem = unknown("argument", parameter.name, values)
                raise OperatorError(f"{file}: {name}(): {problem}")

        def called() -> Any:
            try:
                return function(**arguments)
            except (Exception, SystemExit) as error:  # the border to the user's own Python
                raise OperatorError(f"{file}{_line_of(error, file)}: {name}() raised {_reason(error)}") from error

        return called

    def _outputs(self, name: str, values: Mapping[str, Any]) -> dict[str, Any]:
        result = self.call(name, values)
        outputs = [t.name for t in self.operator.outputs]
        if not isinstance(result, Mapping) and len(outputs) == 1:
            result = {outputs[0]: result}
        if not isinstance(result, Mapping) or set(result) != set(outputs):
            found = ", ".join(map(str, result)) if isinstance(result, Mapping) else type(result).__name__
            raise OperatorError(
                f"{self.module.__file__}: {name}() must return {', '.join(outputs)} by name, not {found}"
            )
        return dict(result)


def check_reference(operator: Operator) -> None:
    """Raise OperatorError unless an operator's reference.py names all that the operator needs; nothing of it is run."""
    path = _reference_file(operator.folder)
    try:
        nodes = [*ast.walk(ast.parse(read_bytes(path)))]
    except OSError as error:
        raise OperatorError(f"{path}: cannot be read: {error.strerror}") from None
    except SyntaxError as error:
        raise OperatorError(f"{path}: cannot be imported: {python_fault(error)}") from None
    except (ValueError, RecursionError, MemoryError) as error:
        raise OperatorError(f"{path}: cannot be imported: {error}") from None
    named = {getattr(node, key, None) for node in nodes for key in ("name", "asname", "id")}
    _check_needed(operator, path, lambda name: not named.isdisjoint((name, "*")))


def _reference_file(folder: Path) -> Path:
    path = folder / "reference.py"
    if not path.is_file():
        raise OperatorError(f"{path}: no such file; reference.py defines reference(...) in fp64 torch")
    return path


def _check_needed(operator: Operator, path: Path, offers: Callable[[str], bool]) -> None:
    """Raise OperatorError for a function that the operator needs, and its reference.py does not offer."""
    drawn = [t.name for t in operator.inputs if t.distribution is None]
    needed = {"reference": "it computes the outputs in fp64"}
    if drawn:
        needed["inputs"] = f"it makes {', '.join(drawn)}, which operator.toml gives no distribution"
    if operator.data_dims:
        needed["data_dims"] = f"it tells {', '.join(operator.data_dims)} from the inputs"
    for name, purpose in needed.items():
        if not offers(name):
            raise OperatorError(f"{path}: `def {name}(...)` is missing; {purpose}")


@lru_cache
def functions(operator_folder: Path) -> Functions:
    """Import reference.py of an operator's folder; this imports torch. Raises OperatorError."""
    return Functions(_read(operator_folder), _imported(_reference_file(operator_folder)))


@lru_cache
def declared_libraries(operator_folder: Path) -> tuple[LibraryCall, ...]:
    """The library calls that libraries.py of an operator's folder declares, whatever they serve; without it,
    `library(...)` alone.

    It imports torch. It raises OperatorError.
    """
    path = operator_folder / LIBRARIES
    if not path.is_file():
        return own(UNNAMED), compiled(UNNAMED)
    found = getattr(_imported(path), "LIBRARIES", None)
    if not isinstance(found, list | tuple) or not all(isinstance(each, LibraryCall) for each in found):
        raise OperatorError(f"{path}: it must define LIBRARIES, a list of what operators.libraries makes")
    own_names = [each.name for each in found if each.function is None and each.kind != "compiled"]
    calls = *found, *map(compiled, own_names)
    names = [each.name for each in calls]
    if twice := [name for name in names if names.count(name) > 1]:
        raise OperatorError(f"{path}: two calls are named {twice[0]}")
    return calls


def _imported(path: Path) -> ModuleType:
    digest = hashlib.sha256(str(path).encode()).hexdigest()[:12]
    spec = importlib.util.spec_from_file_location(f"_operator_{digest}", path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # compilers and pickles of its functions look there for their globals
    try:
        read_bytes(path)  # it fails where importing a file would take all memory
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:  # the border to the user's own Python
        del sys.modules[spec.name]
        if isinstance(error, MemoryError | ImportError) and (fault := machine_error(error)):
            raise fault from error
        raise OperatorError(f"{path}: cannot be imported: {_reason(error)}") from error
    return module


def _reason(error: BaseException) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())[:300]


def _line_of(error: BaseException, file: str) -> str:
    """`:12`, the innermost line of the file that was under way."""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
    return f":{lines[-1]}" if lines else ""
