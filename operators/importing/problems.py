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
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

import torch
from torch import nn

from operators.importing.arguments import DTYPES, argument, drawn, members
from operators.importing.draws import drawn_integers
from operators.importing.foreign import Hopeless, opened
from operators.importing.graphs.symbols import length, real, whole

SHAPED = {"rand", "randn", "empty", "ones", "zeros", "arange", "linspace", "eye", "randperm"}
"""Functions that make a tensor of the sizes that they are given, one by one or together."""
FACTORIES = SHAPED | {"randint", "full", "normal", "uniform"}
"""With those that are given other numbers too."""
LEAST_ATTRIBUTE = 8
"""A smaller integer that no input's shape comes from is an attribute, such as a stride, and stays as it is."""
LEAST_STATED = 16
"""A smaller number of a definition's source may be the size of an axis by chance."""
KINDS: Mapping[str, tuple[int, tuple[int, ...]]] = {
    "one element": (1, (1,)),
    "small": (2, (1, 2, 3, 4, 5)),
    "odd": (3, (3, 7, 17, 33, 65)),
    "even, no multiple of 8": (2, (2, 6, 10, 34, 100)),
    "divisible by 8": (2, (8, 24, 40, 72)),
    "divisible by 32": (6, (32, 64, 96, 160, 32)),
}
"""Kinds of hidden shapes: how many are wanted, and sizes that make them."""
MODULE = "problem"
KNOB = "_size_of_a_problem"
WHOLE = "_whole_number_of_a_problem"
REAL = "_real_number_of_a_problem"
LENGTH = "_length_of_a_problem"
"""The names of what is called in the places of `int`, `float` and `len`, which no symbol and no tensor outlives."""
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
    changes: bool = False
    """Whether arguments that it changes in place are results too."""
    is_pure: bool = False
    """Whether it must leave its arguments as they are."""
    chosen: set[str] = field(default_factory=set)
    """Knobs whose sizes the source does not tell."""
    rows: set[str] = field(default_factory=set)
    """Knobs of rows which a source may have a loop of Python over."""
    unbounded: set[int] = field(default_factory=set)
    """Arguments, by their numbers, that are integers whose range the source does not tell."""

    def smallest(self) -> Problem:
        """The same with ones for the sizes that the source does not tell, as it has a loop of Python over them."""
        ones = dict.fromkeys(sorted(self.chosen), 1)
        note = f"1, as the source has a loop over it, and no workload names a size: {', '.join(ones)}"
        workloads = [{**each, **ones} for each in self.workloads]
        return replace(self, sizes=self.sizes | ones, workloads=workloads, notes=[*self.notes, note], chosen=set())

    def by_rows(self, rows: str) -> Problem:
        """The same with a note on rows that the source has a loop of Python over."""
        note = (
            f"the source has a loop over `{rows}`; here all rows are computed at once, none of which hangs on another"
        )
        return replace(self, notes=[*self.notes, note])

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
    makers = ("get_inputs", "get_init_inputs")
    code, sizes = compiled(text, request["file"], makers, tied=request.get("tied", False))
    mentioned = _mentioned(text, "get_inputs")

    def made(knob: Knob) -> tuple[Callable[..., Any], list[Any]]:
        names = executed(code, knob, {})
        first, args = names["get_init_inputs"](), names["get_inputs"]()
        model = names["Model"](**first) if isinstance(first, Mapping) else names["Model"](*first)
        return _with_arguments(model, args)

    inner = {name for name in sizes if name not in mentioned and not re.fullmatch(r"d\d+", name)}
    return Problem(sizes, made, {name for name in inner if re.sub(r"_\d+$", "", name) not in mentioned})


def _callable(request: Mapping[str, Any]) -> Problem:
    text, function, maker = _text(request), request["function"], request["inputs"]
    code, sizes = compiled(text, request["file"], (maker,), tied=request.get("tied", False))

    def made(knob: Knob) -> tuple[Callable[..., Any], list[Any]]:
        names = executed(code, knob, {})
        args, call = names[maker](), names[function]
        if not opened(args):
            raise Hopeless(f"{maker}() gives no tensor; it is to return what {function}() is called with")
        call = call() if isinstance(call, type) and issubclass(call, nn.Module) else call
        return _with_arguments(call, args)

    return Problem(sizes, made, changes=True)


def _with_arguments(call: Callable[..., Any], args: Any) -> tuple[Callable[..., Any], list[Any]]:
    """The function and its arguments in their order, which a source makes as a sequence, as a table by name, or as the
    only one."""
    function = call.forward if isinstance(call, nn.Module) else call
    if isinstance(args, Mapping) and args.keys() <= inspect.signature(function).parameters.keys():
        if function is call:
            return by_name(call, list(args)), list(args.values())
        return call, list(inspect.signature(function).bind(**args).args)
    return call, list(args) if isinstance(args, tuple | list) else [args]


def _axes(request: Mapping[str, Any]) -> Problem:
    """A definition with axes: FlashInfer Trace, SOL-ExecBench."""
    sizes = {name: int(value) for name, value in request["sizes"].items()}
    told = {axis for entry in request["inputs"].values() for axis in entry["shape"] or ()}
    constants = {name: sizes[name] for name in request.get("constants", ())}
    known = _with_derived(request["derived"], constants)
    varying = {} if request.get("is_literal") else {name: size for name, size in known.items() if name in told}
    code = stated(_text(request), request["file"], varying)

    def made(knob: Knob) -> tuple[Callable[..., Any], list[Any]]:
        env = _with_derived(request["derived"], {name: knob(name) for name in sizes})
        names = executed(code, env.__getitem__, {})
        custom: Mapping[str, Any] = {}
        if request.get("custom"):
            given = {**env, **{n: i["value"] for n, i in request["inputs"].items() if i.get("value") is not None}}
            custom = names[request["custom"]](given, "cpu")
        whole = _integers(request, env)
        args = []
        for name, entry in request["inputs"].items():
            if name in custom:
                args.append(custom[name])
            elif name in whole:
                args.append(whole[name].to(DTYPES[entry["dtype"]]))
            elif entry["shape"] is None:
                args.append(entry["value"])
            else:
                shape, dtype = [env[axis] for axis in entry["shape"]], DTYPES[entry["dtype"]]
                values = torch.rand(shape, dtype=dtype) if entry.get("positive") else drawn(shape, dtype)
                args.append(values.softmax(-1) if entry.get("shares") else values)
        run, known = names["run"], list(request["inputs"])
        is_by_name = set(known) <= inspect.signature(run).parameters.keys()  # its parameters may have another order
        return by_name(run, known) if is_by_name else run, args

    chosen, rows = set(request.get("chosen", ())), set(request.get("rows", ()))
    whole = [e["shape"] is not None and "int" in e["dtype"] and not e["custom"] for e in request["inputs"].values()]
    return Problem(
        sizes,
        made,
        inner=set(request.get("constants", ())),
        workloads=[dict(each) for each in request["workloads"]],
        chosen=chosen,
        rows=rows,
        unbounded={number for number, is_whole in enumerate(whole) if is_whole},
    )


def _integers(request: Mapping[str, Any], env: Mapping[str, int]) -> dict[str, torch.Tensor]:
    """The integers of a source that is executed as it is, whose rules are known."""
    rules = request.get("rules", {})
    shapes = {name: [env[axis] for axis in request["inputs"][name]["shape"]] for name in rules}
    return drawn_integers(rules, shapes, env)


def _with_derived(derived: Mapping[str, str], sizes: Mapping[str, Any]) -> dict[str, Any]:
    """The sizes, with those that follow from them."""
    env = dict(sizes)
    for name, expression in derived.items():
        if set(re.findall(r"[A-Za-z_]\w*", expression)) <= env.keys():
            env[name] = eval(expression, {"__builtins__": {}}, dict(env))
    return env


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
        return by_name(function, list(calls[0]["arguments"]), only), given

    sizes = [{name: size for name, size in each.items() if name in wanted} for each in axes]
    return Problem(sizes[0], made, workloads=sizes, is_pure=True)


def by_name(function: Callable[..., Any], names: list[str], only: Sequence[str] | None = None) -> Callable[..., Any]:
    """The function, called with arguments in this order; `only` those are passed by name, or all of them."""
    named = names if only is None else only

    def call(*arguments: Any) -> Any:
        positional = len(arguments) - len(named)
        return function(*arguments[:positional], **dict(zip(named, arguments[positional:], strict=True)))

    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    call.__signature__ = inspect.Signature([inspect.Parameter(name, kind) for name in names])  # type: ignore[attr-defined]
    return call


def _axes_of(arguments: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, int]]:
    """The sizes of all axes of the tensors among arguments, by the names of their knobs."""
    for name, told in arguments.items():
        for axis, size in enumerate(told.get("shape", ())):
            yield f"{prefix}{name}_{axis}", size
        yield from _axes_of({str(key): each for key, each in members(told)}, f"{prefix}{name}_")


# --- sizes that a definition and its source both tell ---


class _Stated(ast.NodeTransformer):
    """Rewrites the numbers of a definition's source that are sizes of its constant axes: one that a single axis has, or
    that stands beside the axis's name."""

    def __init__(self, constants: Mapping[str, int]) -> None:
        self.constants = {name: value for name, value in constants.items() if value >= LEAST_STATED}
        values = list(self.constants.values())
        self.single = {value: name for name, value in self.constants.items() if values.count(value) == 1}

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        """Rewrite `width == 128`, in which the size has its name."""
        if isinstance(node.left, ast.Name) and len(node.comparators) == 1:
            node.comparators = [self._named(node.left.id, node.comparators[0])]
        return self.generic_visit(node)

    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        """Rewrite `width = 128`."""
        if isinstance(node.targets[0], ast.Name):
            node.value = self._named(node.targets[0].id, node.value)
        return self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> ast.expr:
        """Rewrite 128, where one axis alone has that many elements."""
        name = self.single.get(node.value) if type(node.value) is int else None
        return self._knob(name) if name else node

    def _named(self, name: str, value: ast.expr) -> ast.expr:
        found = next((axis for axis in self.constants if axis.lower() == name.lower()), "")
        return self._knob(found) if found and integer(value) == self.constants[found] else value

    @staticmethod
    def _knob(name: str) -> ast.Call:
        return ast.Call(ast.Name(KNOB, ast.Load()), [ast.Constant(name)], [])


def stated(text: str, name: str, constants: Mapping[str, int]) -> CodeType:
    """The code of a definition's source, in which these sizes are under our control. It raises SyntaxError."""
    tree = _Stated(constants).visit(Knobs.plain(ast.parse(text)))
    return compile(ast.fix_missing_locations(tree), name, "exec", dont_inherit=True)


# --- knobs ------------------------------------------------------------------------------------------------------------


class Knobs(ast.NodeTransformer):
    """Rewrites a module: it collects the knobs by name, and puts calls in their places."""

    def __init__(self, makers: tuple[str, ...], *, tied: bool) -> None:
        self.makers, self.tied = makers, tied
        self.found: dict[str, int] = {}
        self.helpers: set[str] = set()
        """Functions of the module, which those that make inputs may call with sizes."""

    def visit_Module(self, node: ast.Module) -> ast.Module:
        """Rewrite the constants of the module, then the bodies of functions that make inputs."""
        for statement in node.body:
            if isinstance(statement, ast.Assign) and all(isinstance(t, ast.Name) for t in statement.targets):
                names = [target.id for target in statement.targets if isinstance(target, ast.Name)]
                self._assignment(statement, names)
            elif isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Tuple):
                self.unpacked(statement.targets[-1], statement.value)
            elif isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name) and statement.value:
                value = integer(statement.value)
                if value is not None and value > 0:
                    statement.value = self.knob(statement.target.id, value)
        functions = [statement for statement in node.body if isinstance(statement, ast.FunctionDef)]
        self.helpers = {each.name for each in functions} - {*self.makers}
        for function in functions:
            if function.name in self.makers:
                _Factories(self).visit(function)
                if self.tied:
                    _Bounds(self.found).visit(function)
        return ast.fix_missing_locations(self.plain(node))

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

    def unpacked(self, target: ast.expr, values: ast.Tuple) -> None:
        """Put calls in the places of sizes that names get together."""
        if isinstance(target, ast.Tuple) and len(target.elts) == len(values.elts):
            for index, (name, element) in enumerate(zip(target.elts, values.elts, strict=True)):
                value = integer(element)
                if isinstance(name, ast.Name) and value is not None and value > 0:
                    values.elts[index] = self.knob(name.id, value)

    @staticmethod
    def plain(node: ast.Module) -> ast.Module:
        """The module without its GPU, as there is none where a source is looked at, and with numbers that may be
        symbols."""
        for each in ast.walk(node):
            match each:
                case ast.Constant(value=str(text)) if re.fullmatch(r"cuda(:\d)?", text):
                    each.value = "cpu"
                case ast.Call(func=ast.Name(id="int" | "float" | "len") as function, args=[_], keywords=[]):
                    function.id = {"int": WHOLE, "float": REAL, "len": LENGTH}[function.id]
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
        if isinstance(node.value, ast.Tuple):
            self.knobs.unpacked(node.targets[-1], node.value)
        self.generic_visit(node)
        return node

    def visit_Call(self, node: ast.Call) -> ast.Call:
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if name in SHAPED or name in self.knobs.helpers:
            self._sizes(node.args)
        if name in FACTORIES:
            for argument in (*node.args, *(each.value for each in node.keywords if each.arg == "size")):
                if isinstance(argument, ast.Tuple | ast.List):
                    self._sizes(argument.elts)
        self.generic_visit(node)
        return node

    def _sizes(self, elements: list[ast.expr]) -> None:
        for index, element in enumerate(elements):
            value = integer(element)
            if value is not None and value > 1:
                elements[index] = self.knobs.knob(f"d{len(self.knobs.found)}", value)


class _Bounds(ast.NodeTransformer):
    """Rewrites what indices are drawn below: a number that is a size too is that size, as a vocabulary's is."""

    def __init__(self, found: Mapping[str, int]) -> None:
        self.names = {value: name for name, value in found.items()}

    def visit_Call(self, node: ast.Call) -> ast.Call:
        self.generic_visit(node)
        if getattr(node.func, "attr", getattr(node.func, "id", "")) == "randint":
            for index, bound in enumerate(node.args):
                if (value := integer(bound)) in self.names:
                    node.args[index] = ast.Call(ast.Name(KNOB, ast.Load()), [ast.Constant(self.names[value])], [])
        return node


def integer(node: ast.expr) -> int | None:
    """The value of an expression of integers and `+ - * // ** <<` alone."""
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
                case ast.LShift() if 0 <= b < 40:
                    return a << b
                case ast.FloorDiv() if b:
                    return a // b
                case ast.Pow() if 0 <= b < 40 and abs(a) < 100:
                    return int(a**b)
    return None


def compiled(text: str, name: str, makers: tuple[str, ...], *, tied: bool = False) -> tuple[CodeType, dict[str, int]]:
    """A module's code with calls in the places of its knobs, and these with their values. Raises SyntaxError.

    `tied`: a number that indices are drawn below is the size that has its value.
    """
    tree = ast.parse(text)
    knobs = Knobs(makers, tied=tied)
    knobs.visit(tree)
    return compile(tree, name, "exec", dont_inherit=True), knobs.found


def executed(code: CodeType, knob: Callable[[str], Any], more: Mapping[str, Any]) -> dict[str, Any]:
    """The names that a module defines. It is among those that are loaded, where a dataclass looks for its types."""
    module = sys.modules[MODULE] = ModuleType(MODULE)
    names = vars(module)
    names.update({KNOB: knob, WHOLE: whole, REAL: real, LENGTH: length, **more})
    exec(code, names)
    return names
