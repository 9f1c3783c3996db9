"""The reference of keys: every key of operator.toml, of kernel headers and of runs, as their models tell it."""

from __future__ import annotations

import inspect
import json
import types
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from evo.compare.config import ArmSettings, Comparison
from evo.config import STRATEGIES, CellSettings, RunConfig
from fitness.evaluation import named
from fitness.judging.library import CallTrial, known
from fitness.profiling.roofline import roofline
from fitness.targets import check_target, peaks, present_target
from fitness.words import ratio, standing, time_us
from mutators.llm.settings import LlmSettings, Price
from mutators.registry import MUTATORS
from mutators.transforms import TRANSFORMS
from operators import relations
from operators.catalog import FUNCTIONS, declared_libraries, functions
from operators.champions import Champion, champions, is_as_judged
from operators.definition import reading
from operators.definition.forms import FORMS
from operators.definition.reading import Formula, Sizes
from operators.definition.spec import Operator
from operators.libraries import UNTRIED, call, called, compiled, direct, own
from operators.plan import keys as plan_keys

REQUIRED = "required"
WORDS = {str: "text", int: "integer", float: "number", bool: "true or false", Any: "any value"}


@dataclass(frozen=True)
class Entry:
    """One key, function or name."""

    name: str
    type: str
    default: str
    meaning: str


@dataclass(frozen=True)
class Page:
    """One table."""

    title: str
    about: str
    entries: tuple[Entry, ...]


def operator_pages() -> list[Page]:
    """Pages on the contents of an operator's folder: operator.toml, its forms, reference.py, and the headers of kernel
    files."""
    keys = [_model_page(f"operator.toml {table}".strip(), model) for table, model in reading.TABLES.items()]
    forms = [
        Entry(path.stem, "form", "", _first_comment(path.read_text(encoding="utf-8")))
        for path in sorted(FORMS.glob("*.toml"))
    ]
    functions = [Entry(f"{name}(...)", "function", "", meaning) for name, meaning in FUNCTIONS.items()]
    functions[0] = Entry(functions[0].name, "function", REQUIRED, functions[0].meaning)
    about = (
        "Functions name what they want of dims, derived dims, scalars and tensors as arguments, and what is said below."
    )
    calls = [Entry(f"{f.__name__}{_arguments(f)}", "function", "", _summary(f)) for f in (own, call, direct, compiled)]
    makers = [Entry(f"{name}{_arguments(f)}", "function", "", _summary(f)) for name, f in _makers()]
    return [
        *keys,
        Page("forms", "What `like` may name; each is an unfinished operator.toml in operators/shared.", tuple(forms)),
        Page("reference.py", about, tuple(functions)),
        Page("libraries.py", "What makes the calls that it lists as LIBRARIES.", tuple(calls)),
        Page("operators.relations", "What makes the relations that `relations(...)` returns.", tuple(makers)),
        *(_header_page(table, keys) for table, keys in plan_keys.TABLES.items()),
    ]


def run_pages() -> list[Page]:
    """Pages on the keys of a run's TOML file and of `--set KEY=VALUE`, the settings of every strategy, and the
    mutators."""
    models: list[tuple[str, type[BaseModel]]] = [
        ("run", RunConfig),
        ("[llm]", LlmSettings),
        ("[llm.prices.MODEL]", Price),
        ("[cell]", CellSettings),
        ("comparison", Comparison),
        ("[arms.NAME] of a comparison", ArmSettings),
    ]
    for name, path in STRATEGIES.items():
        if settings := getattr(_named(path), "Settings", None):
            models.append((f"[settings] of strategy {name}", settings))
    mutators = tuple(Entry(name, _waits(path), "", _summary(_named(path))) for name, path in MUTATORS.items())
    transforms = tuple(Entry(t.name, ", ".join(t.targets), "", t.summary) for _, t in sorted(TRANSFORMS.items()))
    return [
        *(_model_page(title, model) for title, model in models),
        Page("mutators", "What makes children; those that ask a language model work where a run has one.", mutators),
        Page("transforms", "What the mutator `transform` does to a kernel, by target.", transforms),
    ]


def _model_page(title: str, model: type[BaseModel]) -> Page:
    entries = (
        Entry(name, type_name(_annotation(field)), _default(field), " ".join((field.description or "").split()))
        for name, field in model.model_fields.items()
    )
    return Page(title, _summary(model), tuple(entries))


def _header_page(table: str, keys: Mapping[str, plan_keys.Key]) -> Page:
    entries = (Entry(n, k.type, REQUIRED if k.default is None else k.default, k.meaning) for n, k in keys.items())
    return Page(f"kernel header {table}".strip(), "Between `/*! evo` and `*/` of a kernel file.", tuple(entries))


def _annotation(field: FieldInfo) -> Any:
    """The annotation of a field with the validators that pydantic has taken off it."""
    return Annotated[field.annotation, *field.metadata] if field.metadata else field.annotation


def type_name(annotation: Any) -> str:
    """A type in the words of a TOML file."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        for known, name in ((Formula, "formula"), (Sizes, "formula or list of integers")):
            if get_args(known)[1] in arguments[1:]:
                return name
        return type_name(arguments[0]) + "".join(_limits(arguments[1:]))
    if origin is Literal:
        return ", ".join(map(str, arguments))
    if origin in (Union, types.UnionType):
        return " or ".join(type_name(part) for part in arguments if part is not type(None))
    if origin in (list, tuple):
        return f"list of {type_name(arguments[0])}"
    if origin is dict:
        return f"table of {type_name(arguments[1])}"
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return "table"
    return WORDS.get(annotation, str(getattr(annotation, "__name__", annotation)))


def _limits(metadata: Iterable[Any]) -> Iterator[str]:
    for constraint in metadata:
        for attribute, sign in (("ge", ">="), ("gt", ">"), ("le", "<="), ("lt", "<")):
            if (value := getattr(constraint, attribute, None)) is not None:
                yield f" {sign} {value:g}"


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return REQUIRED
    value = field.get_default(call_default_factory=True)
    return "none" if value is None else json.dumps(value)


def _named(path: str) -> Any:
    module, _, name = path.partition(":")
    return getattr(import_module(module), name)


def _waits(path: str) -> str:
    return "language model" if getattr(_named(path), "asks_model", False) else "program"


def _makers() -> list[tuple[str, Any]]:
    found = inspect.getmembers(relations, inspect.isfunction)
    return [(name, f) for name, f in found if f.__module__ == relations.__name__ and not name.startswith("_")]


def _arguments(function: Any) -> str:
    return f"({', '.join(inspect.signature(function).parameters)})"


def _summary(documented: Any) -> str:
    """The first paragraph of a docstring, in one line."""
    return " ".join((inspect.getdoc(documented) or "").split("\n\n")[0].split())


def _first_comment(text: str) -> str:
    lines = []
    for line in text.splitlines():
        if not line.startswith("#"):
            break
        lines.append(line.lstrip("# "))
    return " ".join(lines)


def listing(operators: Iterable[Operator]) -> list[dict[str, Any]]:
    """One row an operator."""
    return [
        {
            "operator": o.name,
            "family": o.family,
            "targets": ", ".join(f"{target}: {' '.join(dtypes)}" for target, dtypes in o.dtypes.items()),
            "formula": o.formula,
        }
        for o in operators
    ]


def one(operator: Operator) -> list[dict[str, str]]:
    """Everything about one operator but its workloads, as property and value."""
    shapes = [(t.name, f"{t.role} {t.dtype} [{', '.join(axis.text for axis in t.shape)}]") for t in operator.tensors]
    files = [operator.ancestor(name, target).name for target in operator.dtypes for name in operator.ancestors(target)]
    best = [
        (f"champions/{c.file}, {c.dtype}", _measured(c) if is_as_judged(operator.folder, c) else CHANGED)
        for c in champions(operator.folder)
    ]
    rows = [
        ("name", operator.name),
        ("family", operator.family),
        ("formula", operator.formula),
        *shapes,
        *((s.name, f"scalar {s.dtype} = {s.value}") for s in operator.scalars),
        *((f"{name} (derived)", e.text) for name, e in operator.derived.items()),
        *((f"{name} (from the data)", meaning) for name, meaning in operator.data_dims.items()),
        ("flops", operator.flops.text),
        ("bytes", operator.bytes.text),
        ("min_bytes", operator.min_bytes.text),
        ("tolerance", f"{operator.tolerance.bound}, K = {operator.tolerance.terms.text}"),
        ("hidden shapes", str(len(operator.hidden))),
        ("first kernels", ", ".join(files)),
        *best,
        *_libraries(operator),
        ("folder", str(operator.folder)),
    ]
    return [{"property": name, "value": value} for name, value in rows]


def _libraries(operator: Operator) -> list[tuple[str, str]]:
    """The calls that its kernels may be compared with, and what each workload's fastest was where they were tried."""
    offered = functions(operator.folder).offers("library")
    calls = [c for c in declared_libraries(operator.folder) if c.function or offered]
    declared = [f"{c.name} ({', '.join([*c.targets, *c.dtypes, *[c.kind] * (c.kind != 'call')])})" for c in calls]
    rows = [("library calls", "; ".join(declared) or "none")]
    for choice in known(operator):
        place = choice.place
        where = f"library, {place.dtype}/{place.target}, set {place.workload_set}, {place.device}"
        chosen = named({workload: _called(t) for workload, t in choice.best.items()})
        mean = f"; geometric mean of these {time_us(choice.mean_us)}" * (not choice.lack)
        best = f"fastest: {chosen}{mean}" if chosen else "none"
        rows.append((where, "; ".join([best, *(_trial(t) for t in choice.tried)])))
    return rows


def _called(tried: CallTrial) -> str:
    return called(tried.name, tried.kind)


def _trial(tried: CallTrial) -> str:
    """The times of a call, or why it was left out."""
    times = [f"{_called(tried)}: {', '.join(f'{w} {time_us(us)}' for w, us in tried.us.items())}"] * bool(tried.us)
    return "; ".join([*times, *[f"{tried.name} left out: {tried.left_out}"] * bool(tried.left_out)])


CHANGED = "changed since it was judged: `evo evaluate` tells what it is worth"


def _measured(champion: Champion) -> str:
    """The measurements of a kernel when it was taken in, and the note on them."""
    library = "the library" + f", {UNTRIED}" * bool(champion.untried)
    known = ((champion.over_naive, "naive"), (champion.over_library, library))
    speedups = [f"{ratio(speedup)} over {whom}" for speedup, whom in known if speedup]
    level = standing(champion.level, champion.flagged)
    where = f"on {champion.device}, {champion.workloads}: {champion.status} ({level})"
    return "; ".join((where, *speedups, *[champion.note] * bool(champion.note)))


def workloads(operator: Operator, target: str = "") -> dict[str, Any]:
    """A device, and what each workload's plain algorithm moves, computes and takes there at least, by dtype.

    `target`: cpu or cuda; default: cuda where there is a GPU that the operator runs on. The device's peaks are measured
    now; those of the cpu are kept from then on. Raises UserError.
    """
    if target:
        check_target(target)
    else:
        target = present_target(operator.dtypes)
    limits = peaks(target)
    rows: list[dict[str, Any]] = []
    for workload in operator.workloads:
        models = {dtype: roofline(operator, workload.dims, dtype, limits) for dtype in operator.dtypes.get(target, ())}
        rows.append(
            {
                "set": workload.set,
                "workload": workload.name,
                "weight": workload.weight,
                "source": workload.source,
                "roofline": {
                    dtype: {"bytes": m.bytes, "flops": m.flops, "us": m.attainable_us, "limit": m.bound}
                    for dtype, m in models.items()
                },
            }
        )
    return {"target": target, "device": limits.device, "workloads": rows}


def workload_cells(row: Mapping[str, Any]) -> dict[str, str]:
    """One of these workloads in a few columns."""
    cells = {"set": row["set"], "workload": row["workload"]}
    for dtype, model in row["roofline"].items():
        cells["Gflop"] = f"{model['flops'] / 1e9:.3g}"
        cells[f"{dtype} MB"] = f"{model['bytes'] / 1e6:.3g}"
        cells[f"{dtype} roofline"] = f"{time_us(model['us'])}, {model['limit']}"
    return {**cells, "source": row["source"]}
