"""Problems as a jailed process sees them: sizes under our control, and a call with its arguments."""

from __future__ import annotations

import inspect
import random
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from torch import nn

from operators.importing.arguments import DTYPES, argument, drawn, members
from operators.importing.knobs import LEAST_ATTRIBUTE, compiled, executed

Knob = Callable[[str], Any]


@dataclass
class Problem:
    """A foreign problem."""

    sizes: dict[str, int]
    """Values of its knobs at the source's own sizes."""
    made: Callable[[Knob], tuple[Callable[..., Any], list[Any]]]
    """Executes it with these sizes: the call, and its arguments."""
    inner: set[str] = field(default_factory=set)
    """Knobs that the inputs do not come from: attributes, where they are small."""
    workloads: list[dict[str, int]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    is_pure: bool = False
    """Whether it must leave its arguments as they are."""
    chosen: set[str] = field(default_factory=set)
    """Knobs whose sizes the source does not tell."""

    def smallest(self) -> Problem:
        """The same with ones for the sizes that the source does not tell, as it has a loop of Python over them."""
        ones = dict.fromkeys(sorted(self.chosen), 1)
        note = f"1, as the source has a loop over it, and no workload names a size: {', '.join(ones)}"
        workloads = [{**each, **ones} for each in self.workloads]
        return replace(self, sizes=self.sizes | ones, workloads=workloads, notes=[*self.notes, note], chosen=set())

    def attempts(self) -> Iterator[set[str]]:
        """Sets of knobs to keep as constants, one attempt after the other."""
        attributes = {name for name in self.inner if self.sizes[name] < LEAST_ATTRIBUTE}
        yield attributes
        yield set(self.inner)
        for name in sorted(self.sizes, key=lambda name: self.sizes[name]):
            if name not in self.inner:
                yield self.inner | {name}
        outer = [name for name in self.sizes if name not in self.inner]
        for kept in outer:
            yield set(self.sizes) - {kept}
        yield set(self.sizes)


def problem_of(request: Mapping[str, Any]) -> Problem:
    """The problem that a reader described."""
    return {"module": _module, "callable": _callable, "axes": _axes, "spec": _spec, "recorded": _recorded}[
        request["kind"]
    ](request)


def _text(request: Mapping[str, Any]) -> str:
    return Path(request["file"]).read_text(encoding="utf-8")


def _mentioned(text: str, function: str) -> set[str]:
    """Names in a function's source, from its `def` to the next line that begins at the left edge."""
    match = re.search(rf"^def {function}\b.*?(?=^\S|\Z)", text, re.M | re.S)
    return set(re.findall(r"[A-Za-z_]\w*", match[0])) if match else set()


def _module(request: Mapping[str, Any]) -> Problem:
    text = _text(request)
    code, sizes = compiled(text, request["file"], ("get_inputs", "get_init_inputs"))
    mentioned = _mentioned(text, "get_inputs")

    def made(knob: Knob) -> tuple[Callable[..., Any], list[Any]]:
        names = executed(code, knob, {})
        return names["Model"](*names["get_init_inputs"]()), list(names["get_inputs"]())

    inner = {name for name in sizes if name not in mentioned and not re.fullmatch(r"d\d+", name)}
    return Problem(sizes, made, {name for name in inner if re.sub(r"_\d+$", "", name) not in mentioned})


def _callable(request: Mapping[str, Any]) -> Problem:
    text, function, maker = _text(request), request["function"], request["inputs"]
    code, sizes = compiled(text, request["file"], (maker,))

    def made(knob: Knob) -> tuple[Callable[..., Any], list[Any]]:
        names = executed(code, knob, {})
        args = names[maker]()
        args = list(args) if isinstance(args, tuple | list) else [args]
        call = names[function]
        return (call() if isinstance(call, type) and issubclass(call, nn.Module) else call), args

    return Problem(sizes, made)


def _axes(request: Mapping[str, Any]) -> Problem:
    """A definition with axes: FlashInfer Trace, SOL-ExecBench."""
    code, _ = compiled(_text(request), request["file"], ())
    sizes = {name: int(value) for name, value in request["sizes"].items()}

    def made(knob: Knob) -> tuple[Callable[..., Any], list[Any]]:
        names = executed(code, knob, {})
        env = {name: knob(name) for name in sizes}
        for name, expression in request["derived"].items():
            env[name] = eval(expression, {"__builtins__": {}}, dict(env))
        custom: Mapping[str, Any] = {}
        if request.get("custom"):
            given = {**env, **{n: i["value"] for n, i in request["inputs"].items() if i.get("value") is not None}}
            custom = names[request["custom"]](given, "cpu")
        args = []
        for name, entry in request["inputs"].items():
            if name in custom:
                args.append(custom[name])
            elif entry["shape"] is None:
                args.append(entry["value"])
            else:
                args.append(drawn([env[axis] for axis in entry["shape"]], DTYPES[entry["dtype"]]))
        return names["run"], args

    inner = set(request.get("constants", ()))
    workloads = [dict(each) for each in request["workloads"]]
    return Problem(sizes, made, inner, workloads, chosen=set(request.get("chosen", ())))


def _spec(request: Mapping[str, Any]) -> Problem:
    """A GPU MODE problem: `generate_input(**spec)` and `ref_kernel(data)`."""
    code, _ = compiled(_text(request), request["file"], ())
    spec = dict(request["spec"])
    sizes = {name: value for name, value in spec.items() if type(value) is int and name != "seed" and value > 0}

    def made(knob: Knob) -> tuple[Callable[..., Any], list[Any]]:
        names = executed(code, knob, {})
        given = {name: knob(name) if name in sizes else value for name, value in spec.items()}
        if "seed" in given:
            given["seed"] = random.randrange(2**16)
        return names["ref_kernel"], [names["generate_input"](**given)]

    return Problem(sizes, made, set(), [{n: w[n] for n in sizes} for w in request["workloads"]])


def _recorded(request: Mapping[str, Any]) -> Problem:
    """A function with recorded calls, the largest first: each axis that is not always one is a knob."""
    code = compile(_text(request), request["file"], "exec")
    calls = request["calls"]
    axes = [dict(_axes_of(call["arguments"])) for call in calls]
    wanted = {name for name, size in axes[0].items() if size > 1 or any(other[name] > 1 for other in axes)}
    package, only = {"__package__": request["package"]}, request["keyword_only"]

    def made(knob: Knob) -> tuple[Callable[..., Any], list[Any]]:
        function = executed(code, knob, package)[request["function"]]
        size = {name: knob(name) if name in wanted else 1 for name in axes[0]}

        def sizes_of(tensor: str, told: Mapping[str, Any]) -> list[Any]:
            return [size[f"{tensor}_{axis}"] for axis, _ in enumerate(told["shape"])]

        given = [argument(told, sizes_of, name) for name, told in calls[0]["arguments"].items()]

        def call(*arguments: Any) -> Any:
            positional = len(arguments) - len(only)
            return function(*arguments[:positional], **dict(zip(only, arguments[positional:], strict=True)))

        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        names = [inspect.Parameter(name, kind) for name in calls[0]["arguments"]]
        call.__signature__ = inspect.Signature(names)  # type: ignore[attr-defined]
        return call, given

    sizes = [{name: size for name, size in each.items() if name in wanted} for each in axes]
    return Problem(sizes[0], made, workloads=sizes, is_pure=True)


def _axes_of(arguments: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, int]]:
    """The sizes of all axes of the tensors among arguments, by the names of their knobs."""
    for name, told in arguments.items():
        for axis, size in enumerate(told.get("shape", ())):
            yield f"{prefix}{name}_{axis}", size
        yield from _axes_of({str(key): each for key, each in members(told)}, f"{prefix}{name}_")
