"""Problems as a jailed process sees them: sizes under our control, and a call with its arguments.

Sizes that a source sets for itself are found in its syntax tree. A knob is an integer that the module gives a name to,
or one in the call of a tensor factory of the functions that make inputs. The module is compiled with a call in each
one's place, which answers with a symbol or with another size.
"""

from __future__ import annotations

import ast
import inspect
import random
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import CodeType
from typing import Any

from torch import nn

from operators.importing.arguments import DTYPES, argument, drawn, members
from operators.importing.symbols import whole

FACTORIES = {"rand", "randn", "randint", "empty", "ones", "zeros", "full", "normal", "uniform", "arange", "linspace"}
LEAST_ATTRIBUTE = 8
"""A smaller integer that no input's shape comes from is an attribute, such as a stride, and stays as it is."""
KNOB = "_size_of_a_problem"
WHOLE = "_whole_number_of_a_problem"
"""The name of what is called in the place of `int`, which no symbol outlives."""
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


# --- knobs ------------------------------------------------------------------------------------------------------------


class Knobs(ast.NodeTransformer):
    """Rewrites a module: it collects the knobs by name, and puts calls in their places."""

    def __init__(self, makers: tuple[str, ...]) -> None:
        self.makers = makers
        self.found: dict[str, int] = {}

    def visit_Module(self, node: ast.Module) -> ast.Module:
        """Rewrite the constants of the module, then the bodies of functions that make inputs."""
        for statement in node.body:
            if isinstance(statement, ast.Assign) and all(isinstance(t, ast.Name) for t in statement.targets):
                names = [target.id for target in statement.targets if isinstance(target, ast.Name)]
                self._assignment(statement, names)
            elif isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Tuple):
                self._unpacked(statement.targets[-1], statement.value)
            elif isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name) and statement.value:
                value = integer(statement.value)
                if value is not None and value > 0:
                    statement.value = self.knob(statement.target.id, value)
        for statement in node.body:
            if isinstance(statement, ast.FunctionDef) and statement.name in self.makers:
                _Factories(self).visit(statement)
        return ast.fix_missing_locations(self._plain(node))

    def knob(self, name: str, value: int) -> ast.Call:
        """The call that stands for a size."""
        while name in self.found:
            name += "_"
        self.found[name] = value
        return ast.Call(ast.Name(KNOB, ast.Load()), [ast.Constant(name)], [])

    def _assignment(self, statement: ast.Assign, names: list[str]) -> None:
        value = integer(statement.value)
        if value is not None and value > 0:
            calls: list[ast.expr] = [self.knob(name, value) for name in names]
            if len(calls) == 1:
                statement.value = calls[0]
            else:
                statement.targets = [ast.Tuple([ast.Name(name, ast.Store()) for name in names], ast.Store())]
                statement.value = ast.Tuple(calls, ast.Load())
        elif isinstance(statement.value, ast.Tuple | ast.List) and len(names) == 1:
            for index, element in enumerate(statement.value.elts):
                value = integer(element)
                if value is not None and value > 1:
                    statement.value.elts[index] = self.knob(f"{names[0]}_{index}", value)

    def _unpacked(self, target: ast.expr, values: ast.Tuple) -> None:
        if isinstance(target, ast.Tuple) and len(target.elts) == len(values.elts):
            for index, (name, element) in enumerate(zip(target.elts, values.elts, strict=True)):
                value = integer(element)
                if isinstance(name, ast.Name) and value is not None and value > 0:
                    values.elts[index] = self.knob(name.id, value)

    @staticmethod
    def _plain(node: ast.Module) -> ast.Module:
        """There is no GPU where a source is looked at, and numbers may be symbols."""
        for each in ast.walk(node):
            match each:
                case ast.Constant(value=str(text)) if re.fullmatch(r"cuda(:\d)?", text):
                    each.value = "cpu"
                case ast.Call(func=ast.Name(id="int") as function, args=[_], keywords=[]):
                    function.id = WHOLE
        return node


class _Factories(ast.NodeTransformer):
    def __init__(self, knobs: Knobs) -> None:
        self.knobs = knobs

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
        defaults = node.args.defaults
        named = node.args.args[len(node.args.args) - len(defaults) :]
        for index, (parameter, default) in enumerate(zip(named, defaults, strict=True)):
            value = integer(default)
            if value is not None and value > 1:
                defaults[index] = self.knobs.knob(parameter.arg, value)
        self.generic_visit(node)
        return node

    def visit_Assign(self, node: ast.Assign) -> ast.Assign:
        value = integer(node.value)
        if value is not None and value > 1 and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            node.value = self.knobs.knob(node.targets[0].id, value)
            return node
        self.generic_visit(node)
        return node

    def visit_Call(self, node: ast.Call) -> ast.Call:
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if name in FACTORIES:
            if name == "randint":  # bounds come first
                for argument in node.args:
                    if isinstance(argument, ast.Tuple | ast.List):
                        self._sizes(argument.elts)
            else:
                self._sizes(node.args)
                for argument in node.args[:1]:
                    if isinstance(argument, ast.Tuple | ast.List):
                        self._sizes(argument.elts)
        self.generic_visit(node)
        return node

    def _sizes(self, elements: list[ast.expr]) -> None:
        for index, element in enumerate(elements):
            value = integer(element)
            if value is not None and value > 1:
                elements[index] = self.knobs.knob(f"d{len(self.knobs.found)}", value)


def integer(node: ast.expr) -> int | None:
    """The value of an expression of integers and `+ - * // **` alone."""
    match node:
        case ast.Constant(value=int(value)) if type(value) is int and abs(value) < 2**40:
            return value
        case ast.BinOp(left=left, op=op, right=right):
            a, b = integer(left), integer(right)
            if a is None or b is None:
                return None
            match op:
                case ast.Add():
                    return a + b
                case ast.Sub():
                    return a - b
                case ast.Mult():
                    return a * b
                case ast.FloorDiv() if b:
                    return a // b
                case ast.Pow() if 0 <= b < 40 and abs(a) < 100:
                    return int(a**b)
    return None


def compiled(text: str, name: str, makers: tuple[str, ...]) -> tuple[CodeType, dict[str, int]]:
    """A module's code with calls in the places of its knobs, and these with their values. Raises SyntaxError."""
    tree = ast.parse(text)
    knobs = Knobs(makers)
    knobs.visit(tree)
    return compile(tree, name, "exec"), knobs.found


def executed(code: CodeType, knob: Callable[[str], Any], more: Mapping[str, Any]) -> dict[str, Any]:
    """The names that a module defines."""
    names: dict[str, Any] = {"__name__": "problem", KNOB: knob, WHOLE: whole, **more}
    exec(code, names)
    return names
