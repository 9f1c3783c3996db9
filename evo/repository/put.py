"""Puts a run's best kernel into the place of the function that its operator was taken from, and takes it out again.

The kernel is a package beside the function's file; two lines above the function send calls to it. The package's
`put.json` is a journal: it is there before the file is changed, so that a put that was cut off is undone by the next.
"""

from __future__ import annotations

import ast
import inspect
import json
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from types import FrameType
from typing import Any

from evo.outside.kit import Change, read_exactly, write_exactly
from evo.packaging.cpp import identifier
from evo.packaging.package import ENGINE, Subject, package_files, relative, write_folder
from evo.packaging.runtime import compare
from evo.packaging.runtime.loading import TORCH_TYPES
from evo.packaging.solution import returned_text
from evo.repository.recording import signature
from fitness.words import counted
from operators import identity
from operators.definition.spec import Operator, Task, Tensor
from operators.dtypes import resolve_dtype
from operators.errors import MachineError, UserError
from operators.files import read_text
from operators.importing import arguments, needed
from operators.importing.folder import call_of
from operators.importing.needed import MARK, package_of, source_digest, without_marks
from operators.importing.taken import definition, file_and_name

JOURNAL = "put.json"
LEFT_OUT = ("test_kernel.py", "cases.npz", "cpp/test_", "cpp/cases.", "cpp/kernel.", "cpp/CMakeLists.txt")
"""Parts of packages that a repository of others has no use for, or would collect as tests of its own."""
ENDINGS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Signals by which a user ends a put."""
COMPARE_S = 600.0
BEFOREHAND = (
    "before it stays, your Python calls the function with and without the kernel in turns, at each recorded call. "
    "Caches are warm there and Python takes its time: less is gained than the search measured from cold caches. Calls "
    "that are no faster stay with the function"
)
"""Words on how a put is judged."""


@dataclass(frozen=True)
class UserFunction:
    """The function that a kernel is put into the place of."""

    path: Path
    name: str

    @classmethod
    def of(cls, named: str) -> UserFunction:
        """Return the place that `FILE:NAME` names. It raises UserError."""
        path, name = file_and_name(named)
        return cls(path.resolve(), name)

    @property
    def folder(self) -> Path:
        """Its kernel's package."""
        return self.path.parent / f"{self.name}_kernel"

    @property
    def module(self) -> str:
        """The name that its file is imported by, from `root`."""
        package, _ = package_of(self.path)
        return f"{package}.{self.path.stem}" if package else self.path.stem

    @property
    def root(self) -> Path:
        """The folder that imports begin from."""
        return package_of(self.path)[1]

    def state(self) -> str:
        """Return `put`, `testing` (a put was cut off), or nothing."""
        with suppress(OSError, ValueError, KeyError, TypeError):
            return str(json.loads(read_text(self.folder / JOURNAL))["state"])
        return ""

    def change(self) -> Change:
        """Return the change of the function's file that sends calls to the package."""
        before = read_exactly(self.path) or ""
        _, function = definition(self.path, self.name)
        first = min([function.lineno, *(each.lineno for each in function.decorator_list)]) - 1
        lines = list(StringIO(before, newline=""))  # ends of lines as Python has them
        end = "\r\n" if lines[first].endswith("\r\n") else "\n"
        parent = f"from .{self.folder.name}.dispatch import put as _put_{self.name}"
        if not package_of(self.path)[0]:  # it may be a script, or have a parent without __init__.py
            module = f"f\"{{__package__ or ''}}.{self.folder.name}.dispatch\".lstrip('.')"
            parent = f'_put_{self.name} = __import__("importlib").import_module({module}).put'
        lines[first:first] = [f"{line}  {MARK}{self.name}{end}" for line in (parent, f"@_put_{self.name}")]
        return Change(self.path.parent, self.path.name, before, "".join(lines))

    def take_out(self) -> bool:
        """Take the kernel out, and return whether there was one. It raises UserError."""
        there = bool(self.state())
        text = read_exactly(self.path) or ""
        if (without := without_marks(text, self.name)) != text:
            write_exactly(self.path, without)
            there = True
        if self.state():  # a folder of ours, whose journal goes last
            for each in sorted(self.folder.iterdir(), key=lambda each: each.name == JOURNAL):
                shutil.rmtree(each) if each.is_dir() else each.unlink()
            self.folder.rmdir()
        return there


def place_of(subject: Subject, into: str) -> UserFunction:
    """Return the place that a kernel's operator was taken from, or `into`. It raises UserError."""
    return UserFunction.of(into or _call(subject.operator)["into"])


class Put:
    """One kernel on its way into a repository."""

    def __init__(self, subject: Subject, place: UserFunction) -> None:
        """It raises UserError for a kernel that cannot take the function's place."""
        verdict = subject.verdict or {}
        if verdict.get("status") != "correct" or verdict.get("level") != "confirmed":
            raise UserError(
                f"{subject.task}: the kernel is not confirmed, so it is put nowhere; evo resume RUN --confirm does that"
            )
        self.subject, self.place, self.call = subject, place, _call(subject.operator)
        if source_digest(place.path, place.name) != self.call["source"]:
            raise UserError(
                f"{place.path}:{place.name}: it, or what it refers to, changed since it was taken: take and search anew"
            )
        judged = {each["workload"] for each in verdict["timings"]}
        self.calls = [call for dims, call in self.call["workloads"] if _name(subject.operator, dims) in judged]
        if not self.calls:
            raise UserError(f"{subject.task}: none of the recorded calls is a workload that the kernel was judged at")
        self.text = _Dispatch(subject, place, self.call)
        self.change = place.change()

    def write(self, state: str, calls: Sequence[Mapping[str, Any]]) -> None:
        """Write dispatch and journal into the package."""
        write_exactly(self.place.folder / "dispatch.py", self.text.written(calls))
        write_exactly(self.place.folder / JOURNAL, self._journal(state))

    def begin(self) -> None:
        """Write the package, with its journal, and then change the file."""

        def files(scratch: Path) -> Mapping[str, str | bytes]:
            made = package_files(self.subject, scratch, self.place.folder.name)
            kept = {path: content for path, content in made.items() if not path.startswith(LEFT_OUT)}
            for module in (arguments, compare, identity, needed):
                name = module.__name__.rpartition(".")[2]
                text = inspect.getsource(module).replace("from operators.importing.", "from .")
                text = text.replace("from operators.identity", "from .identity")
                kept[f"{name}.py"] = relative(module.__name__, text, f".{ENGINE}.")
            return kept | {"dispatch.py": self.text.written(self.calls), JOURNAL: self._journal("testing")}

        write_folder(self.place.folder, files)
        if read_exactly(self.place.path) != self.change.before:
            raise UserError(f"{self.place.path}: it was changed meanwhile: nothing was put")
        self.change.apply()

    def compare(self, python: str) -> tuple[list[dict[str, Any]], str]:
        """Return what the repository's own Python finds at each recorded call, and why it built no binding to torch.

        The reason is empty where it built one. It raises UserError.
        """
        with tempfile.TemporaryDirectory(prefix="evo-put-") as scratch:
            result = Path(scratch, "found.json")
            package = self.place.module.rpartition(".")[0]
            module = f"{package}.{self.place.folder.name}.compare".removeprefix(".")
            command = [python, "-m", module, self.place.module, self.place.name, str(result)]
            code = _run(command, cwd=self.place.root, more={"EVO_PUT_COUNTS": os.devnull}, timeout_s=COMPARE_S)
            if code or not result.exists():
                raise UserError(
                    f"{python}, in {self.place.root}, cannot compare the kernel with the function (exit code {code}); "
                    "--python names the interpreter of your program"
                )
            found = json.loads(result.read_text(encoding="utf-8"))
        return found["calls"], found["not_built"]

    def _journal(self, state: str) -> str:
        said = {"state": state, "file": self.place.path.name, "function": self.place.name, "calls": self.calls}
        said |= {"device": self.subject.task.target, "keyword_only": self.calls[0].get("keyword_only", [])}
        return json.dumps(said, indent=1) + "\n"


def put(made: Put, *, test: str, python: str, every: bool, say: Callable[[str], None]) -> bool:
    """Put a kernel into its place, and return whether it stays there: otherwise all is as it was.

    `test`: the repository's tests, a command that is run here before and after. `every`: keep also the calls that it
    makes no faster. It raises UserError; whatever ends it, Ctrl-C included, leaves all as it was.
    """
    place = made.place
    if test and (code := _run(test)):
        raise UserError(f"{test}: it fails before anything was changed (exit code {code}): nothing was put")
    with _undone(place) as stay:
        made.begin()
        (found, problem), kept = made.compare(python), list[Mapping[str, Any]]()
        say(f"no binding to torch, Python calls the kernel: {problem}" if problem else "its binding to torch is built")
        for call, each in zip(made.calls, found, strict=True):
            shapes = signature(call["arguments"])
            times = f"{each['old_us']:.4g} us before, {each['new_us']:.4g} us with the kernel"
            if each["difference"] or not each["served"]:
                raise MachineError(f"{shapes}: {each['difference'] or 'the kernel does not serve it'}: nothing was put")
            faster = each["is_faster"]
            kept += [call] if faster or every else []
            left = "" if faster or every else "; it stays with the function"
            say(f"{shapes}: {times}, {each['old_us'] / each['new_us']:.3g}x{left}")
        if not kept:
            say("the kernel makes no recorded call faster: nothing was put")
            return False
        made.write("testing", kept)
        if test:
            with tempfile.NamedTemporaryFile(prefix="evo-put-") as counts:
                if code := _run(test, more={"EVO_PUT_COUNTS": counts.name}):
                    say(f"{test}: it fails with the kernel (exit code {code}): everything is as it was")
                    return False
                served = [line.split() for line in Path(counts.name).read_text(encoding="utf-8").splitlines()]
            kernel, function = (sum(int(line[at]) for line in served) for at in (0, 1))
            said = "" if kernel else ": they call no recorded shape, and tell nothing of it"
            say(f"the tests pass; the kernel served {kernel} of {counted(kernel + function, 'call')} in them{said}")
        made.write("put", kept)
        stay()
    return True


@contextmanager
def _undone(place: UserFunction) -> Iterator[Callable[[], None]]:
    """Take the kernel out at the end, however that comes, unless the function that this gives was called."""
    stays = False

    def stay() -> None:
        nonlocal stays
        stays = True

    def end(number: int, _: FrameType | None) -> None:
        raise KeyboardInterrupt(number)

    before = {number: signal.signal(number, end) for number in ENDINGS}
    try:
        yield stay
    finally:
        for number in before:
            signal.signal(number, signal.SIG_IGN)
        if not stays:
            place.take_out()
        for number, handler in before.items():
            signal.signal(number, handler)


def _run(
    command: str | Sequence[str], *, cwd: Path | None = None, more: Mapping[str, str] | None = None,
    timeout_s: float | None = None,
) -> int:  # fmt: skip
    """The exit code of a command of the user's; it is ended with us."""
    environment = {**os.environ, **(more or {})}
    child = None
    try:
        with _undisturbed():  # a signal while it begins would leave a process that nobody knows
            child = subprocess.Popen(
                command, shell=isinstance(command, str), cwd=cwd, env=environment, start_new_session=True
            )  # as the user
        return child.wait(timeout_s)
    except OSError as error:
        raise UserError(f"{command if isinstance(command, str) else command[0]}: {error.strerror}") from None
    except subprocess.TimeoutExpired:
        return -signal.SIGALRM
    finally:
        if child and child.poll() is None:
            with suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()


@contextmanager
def _undisturbed() -> Iterator[None]:
    """A context whose end is when signals that end a put are obeyed that came within it."""
    come: list[int] = []
    before = {number: signal.signal(number, lambda which, _: come.append(which)) for number in ENDINGS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        if come:
            signal.raise_signal(come[0])


def _call(operator: Operator) -> dict[str, Any]:
    """The way from the function's arguments to the operator's tensors, as `evo take` kept it."""
    if "into" in (call := call_of(operator)):
        return call
    raise UserError(f"operator {operator.name} was not made by evo take: there is no function to put its kernel into")


def _name(operator: Operator, dims: Mapping[str, int]) -> str:
    """The name of a workload; empty for a call that is none. An operator without dims has the one `whole`."""
    sizes = dims or {"whole": 1}
    return ",".join(f"{dim}={sizes[dim]}" for dim in operator.dims) if {*operator.dims} <= sizes.keys() else ""


# --- the dispatch -----------------------------------------------------------------------------------------------------

DISPATCH = '''"""Calls of `{name}` go to this folder's kernel where it was judged, all others to the function itself.

`evo put --undo --into {file}:{name}` takes the kernel out again.
"""

import atexit
import functools
import inspect
import os
import warnings
from pathlib import Path

import torch

from .needed import source_digest

JUDGED = (
{judged})
"""Shapes of {tensors}: calls of other shapes stay with the function."""
SOURCE = "{source}"
"""Digest of the function that the kernel was made for, and of all that it refers to in its repository."""
PLAIN = (torch.Tensor, torch.nn.Parameter)
COUNTING = os.environ.get("EVO_PUT_COUNTS", "")
COUNTS = {{"kernel": 0, "function": 0}}


def put(evo_function):
    """The function, with the kernel in its place where that was judged."""
    try:
        plain = inspect.unwrap(evo_function)
        if source_digest(Path(inspect.getsourcefile(plain)).absolute(), "{name}") != SOURCE:
            raise ValueError("the function, or what it refers to, is another by now")
        from . import {operator} as evo_operator
        from .torch_op import is_direct as evo_is_direct
    except Exception as error:
        warnings.warn(f"{name}: its kernel is not used: {{error}}", RuntimeWarning, stacklevel=2)
        return evo_function
    evo_broken = set()

    @functools.wraps(evo_function)
    def {name}({signature}):
        evo_compiles = torch.compiler.is_compiling()
        if evo_serves({given}) and {conditions} and not evo_broken and (evo_compiles or evo_is_direct()):
            try:
                evo_kernel = evo_operator if evo_compiles else evo_operator.run
                {outputs} = evo_kernel({passed})
                if COUNTING:
                    COUNTS["kernel"] += 1
                return {returned}
            except (RuntimeError, ValueError, NotImplementedError, OSError) as error:
                if not evo_compiles:
                    evo_broken.add("kernel")
                    warnings.warn(f"{name}: its kernel is not used: {{error}}", RuntimeWarning, stacklevel=2)
        if COUNTING:
            COUNTS["function"] += 1
        return evo_function({old})

    {name}.__defaults__, {name}.__kwdefaults__ = plain.__defaults__, plain.__kwdefaults__
    return {name}


def evo_serves({given}):
    """Whether the kernel was judged for such tensors: it has no gradients, and takes what is dense."""
    return (
        {serves}
        and ({shapes},) in JUDGED
        and not (torch.is_grad_enabled() and ({gradients}))
        and not torch.is_autocast_enabled("{device}")
{same}    )

{on_gpus}
def tell():
    """Write down how many calls the kernel has served."""
    with open(COUNTING, "a", encoding="utf-8") as file:
        file.write(f"{{COUNTS['kernel']}} {{COUNTS['function']}}\\n")


if COUNTING:
    atexit.register(tell)
'''

ON_GPUS = '''
GPUS = {gpus}


@torch.compiler.assume_constant_result
@functools.lru_cache(None)
def judged_on(index):
    """Whether this is a GPU of the kind that the kernel was judged on."""
    return torch.cuda.get_device_name(index) in GPUS

'''
"""The part for GPUs alone: what marks the function loads torch's compiler, which takes programs a second."""


class _Dispatch:
    """The text of dispatch.py."""

    def __init__(self, subject: Subject, place: UserFunction, call: Mapping[str, Any]) -> None:
        operator, task = subject.operator, subject.task
        _, function = definition(place.path, place.name)
        arguments = function.args
        names = [each.arg for each in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]
        where = f"{place.path}:{place.name}"
        if len(names) != len(call["arguments"]):
            raise UserError(f"{where}: it takes other arguments than when it was recorded")
        recorded = call["workloads"][0][1]["arguments"]
        self.read: list[str] = []
        """The recorded names of the tensors that the kernel gets, in its order."""
        self.given: list[str] = []
        passed, checks = [], []
        for tensor in operator.inputs:
            path = call["inputs"][tensor.name]
            if path[0] != "input" or len(path) != 2:
                raise UserError(f"{where}: `{tensor.name}` is inside of another argument: give the function the tensor")
            known, name = call["arguments"][path[1]], names[path[1]]
            _check_recorded(f"{where}: `{name}`", recorded[known], tensor, task)
            self.read.append(known)
            self.given.append(name)
            dtype = recorded[known]["dtype"]
            passed.append(f"{name}.view(torch.uint8)" if dtype == "bool" else name)
            checks.append(f"type({name}) in PLAIN and {name}.dtype is torch.{dtype} and {name}.is_contiguous()")
        conditions = [
            _condition(name, recorded[known])
            for name, known in zip(names, call["arguments"], strict=True)
            if known not in self.read
        ]
        outputs = [tensor.name for tensor in operator.outputs]
        self.fields = {
            "name": place.name, "file": place.path.name, "device": task.target, "source": call["source"],
            "on_gpus": ON_GPUS.format(gpus=tuple(subject.conditions.get("gpus", ()))) if task.target == "cuda" else "",
            "operator": identifier(operator.name),
            "tensors": ", ".join(self.given), "signature": _signature(arguments), "given": ", ".join(self.given),
            "passed": ", ".join(passed), "conditions": " and ".join(conditions) or "True",
            "outputs": ", ".join(outputs), "returned": returned_text(call["returned"], set(outputs), call["bool"]),
            "old": _passed_on(arguments), "serves": "\n        and ".join(checks),
            "same": _on_one_device(self.given, task.target),
            "shapes": ", ".join(f"{name}.shape" for name in self.given),
            "gradients": " or ".join(f"{name}.requires_grad" for name in self.given),
        }  # fmt: skip

    def written(self, calls: Sequence[Mapping[str, Any]]) -> str:
        """The text that sends these recorded calls to the kernel."""
        shapes = [tuple(tuple(call["arguments"][name]["shape"]) for name in self.read) for call in calls]
        return DISPATCH.format(judged="".join(f"    {each},\n" for each in dict.fromkeys(shapes)), **self.fields)


def _check_recorded(what: str, told: Mapping[str, Any], tensor: Tensor, task: Task) -> None:
    """Raise UserError for an argument that was recorded in another type or on another device than the kernel's."""
    wanted = TORCH_TYPES[resolve_dtype(tensor.dtype, task.dtype).name]
    if told["dtype"] not in (wanted, "bool"):
        raise UserError(
            f"{what} was recorded in {told['dtype']}, and the kernel judged in {wanted}: search with --dtype"
        )
    if told["device"] != task.target:
        raise UserError(f"{what} was recorded on {told['device']}, and the kernel is for {task.target}")


def _on_one_device(given: Sequence[str], target: str) -> str:
    """The conditions that all tensors lie on one device of the kernel's kind."""
    first, *others = given
    conditions = [f"{name}.device == {first}.device" for name in others]
    conditions.append(f'{first}.device.type == "{target}"')
    conditions += [f"judged_on({first}.device.index)"] if target == "cuda" else []
    return "".join(f"        and {condition}\n" for condition in conditions)


def _signature(arguments: ast.arguments) -> str:
    """The parameters, with None for defaults, which the function's own replace."""
    plain = ast.parse(f"def f({ast.unparse(arguments)}): pass").body[0]
    assert isinstance(plain, ast.FunctionDef)
    for each in ast.walk(plain.args):
        if isinstance(each, ast.arg):
            each.annotation = None
    plain.args.defaults = [ast.Constant(None) for _ in plain.args.defaults]
    plain.args.kw_defaults = [each and ast.Constant(None) for each in plain.args.kw_defaults]
    return ast.unparse(plain.args)


def _passed_on(arguments: ast.arguments) -> str:
    parts = [each.arg for each in (*arguments.posonlyargs, *arguments.args)]
    parts += [f"*{arguments.vararg.arg}"] if arguments.vararg else []
    parts += [f"{each.arg}={each.arg}" for each in arguments.kwonlyargs]
    return ", ".join([*parts, *([f"**{arguments.kwarg.arg}"] if arguments.kwarg else [])])


def _condition(name: str, told: Mapping[str, Any]) -> str:
    """The condition that an argument is what it was in the recorded calls."""
    if "shape" in told:
        return f"isinstance({name}, torch.Tensor)"
    value = _literal(told)
    if value in ("None", "True", "False") or "torch" in told:
        return f"{name} is {value}"
    kind = type(told.get("value", 0.0)).__name__ if "value" in told or "float" in told else next(iter(told))
    return f"type({name}) is {kind} and {name} == {value}"


def _literal(told: Mapping[str, Any]) -> str:
    match told:
        case {"value": value}:
            return repr(value)
        case {"float": value}:
            return f'float("{float(value)}")'
        case {"torch": str(value)} if value.isidentifier():
            return f"torch.{value}"
        case {"list": members}:
            return f"[{', '.join(map(_literal, members))}]"
        case {"tuple": members}:
            return f"({''.join(f'{_literal(each)}, ' for each in members)})"
        case {"dict": members}:
            return "{" + ", ".join(f"{key!r}: {_literal(each)}" for key, each in members.items()) + "}"
    raise UserError("an argument holds tensors inside of others: give the function the tensors themselves")
