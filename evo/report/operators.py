"""Operators as rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from evo.report.terminal import microseconds
from fitness.evaluation import called, named
from fitness.flags import standing
from fitness.library import Tried, known
from fitness.roofline import roofline
from fitness.targets import check_target, peaks, present_target
from operators.catalog import declared_libraries, functions
from operators.champions import Champion, champions
from operators.definition.spec import Operator


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
    best = [(f"champions/{c.file}, {c.dtype}", _measured(c)) for c in champions(operator.folder)]
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
    declared = [f"{c.name} ({', '.join([*c.targets, *c.dtypes, *['composed'] * c.composed])})" for c in calls]
    rows = [("library calls", "; ".join(declared) or "none")]
    for choice in known(operator):
        place = choice.place
        where = f"library, {place.dtype}/{place.target}, set {place.workload_set}, {place.device}"
        chosen = named({workload: _called(t) for workload, t in choice.best.items()})
        mean = f"; geometric mean of these {microseconds(choice.mean_us)}" * (not choice.lack)
        best = f"fastest: {chosen}{mean}" if chosen else "none"
        rows.append((where, "; ".join([best, *(_trial(t) for t in choice.tried)])))
    return rows


def _called(tried: Tried) -> str:
    return called(tried.name, composed=tried.kind == "composed")


def _trial(tried: Tried) -> str:
    """The times of a call, or why it was left out."""
    times = [f"{_called(tried)}: {', '.join(f'{w} {microseconds(us)}' for w, us in tried.us.items())}"] * bool(tried.us)
    return "; ".join([*times, *[f"{tried.name} left out: {tried.left_out}"] * bool(tried.left_out)])


def _measured(champion: Champion) -> str:
    """What was seen of a kernel when it was taken in."""
    known = ((champion.over_naive, "naive"), (champion.over_library, "the library"))
    speedups = [f"{speedup:.3g}x over {whom}" for speedup, whom in known if speedup]
    level = standing(champion.level, champion.flagged)
    where = f"on {champion.device}, {champion.workloads}: {champion.status} ({level})"
    return "; ".join((where, *speedups))


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
        cells[f"{dtype} roofline"] = f"{microseconds(model['us'])}, {model['limit']}"
    return {**cells, "source": row["source"]}
