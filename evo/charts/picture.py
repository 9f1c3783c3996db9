"""The picture of a run: every individual as a point, the speedup that it certainly has over generation or time.

The paths of the best kernels are drawn on top, and all edges of the tree where that is chosen. Kernels
without a time stand in rows below, one for each reason. A page draws it on a canvas by script, with filters, and a
slider that shows the population as it stood.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

from evo.charts.drawing import Interactive, colour
from evo.charts.figures import TIMES, time_unit
from fitness.words import in_words, ratio
from operators.identity import short

Rows = Sequence[Mapping[str, Any]]
MOST_POINTS = 10_000
"""Individuals of a picture, besides those that matter most; of more an even part is drawn."""
SHAPES = {
    "confirmed": "diamond", "unconfirmed": "circle", "same program": "wedge", "slower": "triangle-down",
    "wrong": "cross", "compile error": "square", "runtime error": "triangle-up", "timeout": "triangle-right",
    "invalid": "triangle-left", "unsupported": "triangle-left", "quarantined": "arrow", "not judged": "triangle",
}  # fmt: skip
"""By verdict, in the order of rows."""
TIMED = ("confirmed", "unconfirmed")
SHADES = ("mutator", "model", "verdict", "task", "island", "worker")
"""Fields that points may be coloured by."""
MOST_SHADES = 24
MOST_STRONG = 12
"""Paths that are drawn in full ink; more are faint until a task is chosen."""
MOVED = (
    "migrations && datum.moved_until <= until && (!task || datum.task == task) && "
    "(!island || datum.to == island || datum.from == island) && isValid(datum.certain)"
)
ENDS = ("certain", "generation", "at", "until")
"""Fields of an edge's parent, by which it has a place."""
FAINT = {"expr": "clamp(500 / length(data('edges')), 0.06, 0.4)"}
"""Opacity of edges: of many each is faint."""
WIDTH, HEIGHT, ROW = 760, 320, 15
MARK = {
    "type": "point", "filled": True, "opacity": 0.65, "size": 30, "clip": True, "tooltip": {"content": "data"},
    "cursor": {"expr": "datum.href ? 'pointer' : 'default'"},
}  # fmt: skip
SHOWN = (
    "datum.until <= until && (!task || datum.task == task) && (!mutator || datum.mutator == mutator) && "
    "(!model || datum.model == model) && (!verdict || datum.verdict == verdict) && "
    "(!island || datum.island == island) && (!words || indexof(datum.told, lower(words)) >= 0)"
)
TOLD = "lower(datum.id + ' ' + datum.change + ' ' + datum.cell)"
PLACE = "across == 'elapsed' ? datum.at : datum.generation + 0.7 * ((datum.until * 0.61803) % 1 - 0.5)"
"""Individuals of a generation stand beside each other."""
CELL = "datum.task + ' ' + datum.cell + (archive == 'island' ? datum.island : '')"


class AnswersQueries(Protocol):
    """A run that answers the engine's own queries, such as `evo.api.Run`."""

    def rows(self, name: str, **params: Any) -> list[dict[str, Any]]:
        """The rows of an answer."""
        ...


def pictured(run: AnswersQueries, task: str = "", kernel: str = "") -> dict[str, list[dict[str, Any]]]:
    """The rows that the picture of a run is made from, with the paths to its best kernels, or to one `kernel`."""
    paths = run.rows("picture.paths", task=task, kernel=kernel)
    kept = [step["kernel_id"] for step in paths]
    individuals = run.rows("picture.individuals", most=MOST_POINTS, kept=kept)
    return {"individuals": individuals, "paths": paths, "migrations": run.rows("picture.migrations")}


def individuals_picture(
    rows: Rows,
    paths: Rows,
    migrations: Rows = (),
    *,
    link: str = "",
    carded: frozenset[tuple[str, str]] | None = None,
) -> Interactive:
    """The picture of `rows` of the query `picture.individuals`, with `paths` of `picture.paths` and `migrations` of
    `picture.migrations`.

    `link` is the address of a kernel's card, with `{task}` and `{id}` in it; empty: there are none. `carded` are those
    that have one, by task and id; None: all.
    """
    *_, seconds = time_unit(max((row["elapsed_s"] for row in rows), default=0))
    points = [_point(row, seconds, carded) for row in rows]
    known = {(row["task"], row["kernel_id"]): point for row, point in zip(rows, points, strict=True)}
    edges = [
        {"parent": known[key]["until"], "child": point["until"]}
        for row, point in zip(rows, points, strict=True)
        for key in _parents(row)
        if key in known
    ]
    steps = [
        {**known[key], "champion": step["champion"], "step": -step["step"], "label": ratio(known[key]["certain"])}
        for step in paths
        if (key := (step["task"], step["kernel_id"])) in known
    ]
    moves = [
        {
            **known[key], "from": f"island {move['source_island']}", "to": f"island {move['island']}",
            "kind": move["kind"], "moved": _rounded(move["elapsed_s"] / seconds, 6), "moved_until": move["place"],
            "moved_after": _rounded(move["elapsed_s"], 6),
        }
        for move in migrations
        if (key := (move["task"], move["kernel_id"])) in known
    ]  # fmt: skip
    total = rows[0]["individuals"] if rows else 0
    return Interactive(
        "Every individual", f"{len(points):,} of {total:,} individuals by generation and certain speedup.",
        _spec(points, edges, steps, moves, link, total), _said(len(points), total, bool(moves), link, carded),
    )  # fmt: skip


def _said(drawn: int, total: int, has_moves: bool, link: str, carded: frozenset[tuple[str, str]] | None) -> str:
    served = bool(link) and carded is None
    left_out = (
        f"{drawn:,} of {total:,} individuals are drawn: the best kernels with what they come from, the best of each "
        f"cell, and of the others an even part of each task and verdict{'; Kernels lists all' if served else ''}. "
        if drawn < total else f"All {total:,} individuals are drawn. "
    )  # fmt: skip
    moves = "Arrows, where migrations are shown, stand when another island took a kernel over. " if has_moves else ""
    cards = "Press one for all about it" + (", where this file has that. " if carded is not None else ". ")
    return (
        f"{left_out}A kernel stands at the speedup that it certainly has: its confirmed one, or of one that is not "
        "confirmed the lower end of its 95 % interval; bars and rings beside the paths of the best kernels are "
        f"estimates with their intervals. {moves}{cards if link else ''}Shift and the wheel zooms, shift and "
        "a drag moves, a double click shows all again."
    )


def _parents(row: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Tasks and ids of its parents; the principal one may be of another task."""
    for place, parent in enumerate(row["parents"] or ()):
        yield (row["source_task"] or row["task"] if place == 0 else row["task"], parent)


def _point(row: Mapping[str, Any], seconds: int, carded: frozenset[tuple[str, str]] | None) -> dict[str, Any]:
    has_card = carded is None or (row["task"], row["kernel_id"]) in carded
    made = {
        "task": row["task"], "id": short(row["kernel_id"]), "generation": row["generation"],
        "elapsed": _rounded(row["elapsed_s"], 6), "at": _rounded(row["elapsed_s"] / seconds, 6),
        "mutator": row["mutator"], "model": row["model"] or "none",
        "verdict": verdict(row), "island": "" if row["island"] is None else f"island {row['island']}",
        "cell": row["cell"] or "", "worker": row["worker"] or "none", "change": row["change"] or "",
        "until": row["place"], "card": row["kernel_id"] if has_card else "",
    }  # fmt: skip
    return made | {name: _rounded(row[name], 4) for name in ("certain", "speedup", "low", "high")}


def verdict(row: Mapping[str, Any]) -> str:
    """The verdict that a point's shape tells."""
    if row["is_duplicate"]:
        return "same program"
    if row["status"] == "correct":
        return "confirmed" if row["level"] == "confirmed" else "unconfirmed"
    return in_words(row["status"]) if row["status"] else "not judged"


def _rounded(value: float | None, digits: int) -> float | None:
    return None if value is None else float(f"{value:.{digits}g}")


# --- the drawing -----------------------------------------------------------------------------------------------------


def _spec(points: Rows, edges: Rows, steps: Rows, moves: Rows, link: str, total: int) -> dict[str, Any]:
    names = {field: sorted({point[field] for point in points}) for field in SHADES}
    shades = [field for field in SHADES if 1 < len(names[field]) <= MOST_SHADES or field == "mutator"]
    verdicts = [name for name in SHAPES if name in names["verdict"]]
    x = _across(points)
    look = {
        "color": _colours(names, shades),
        "shape": {
            "field": "verdict", "type": "nominal",
            "scale": {"domain": verdicts, "range": [SHAPES[name] for name in verdicts]},
            "legend": {"orient": "top", "values": [name for name in verdicts if name in TIMED], "symbolSize": 70,
                       "symbolFillColor": "var(--ink)"},
        },
        "href": {"condition": {"test": "datum.href", "field": "href", "type": "nominal"}, "value": None},
    }  # fmt: skip
    lanes = [name for name in verdicts if name not in TIMED]
    panels = [_timed(points, steps, moves, x, look, _linked(link)), *([_lanes(lanes, x, look)] if lanes else [])]
    return {
        "$schema": "https://vega.github.io/schema/vega-lite/v6.json",
        "params": [*_params(names, shades, verdicts, total, bool(moves))],
        "datasets": {"individuals": [*points], "edges": [*edges], "paths": [*steps], "migrations": [*moves]},
        "data": {"name": "individuals"},
        "transform": _kept(link), "vconcat": panels, "spacing": 6, "resolve": {"scale": {"x": "shared"}},
    }  # fmt: skip


def _params(
    names: Mapping[str, list[str]], shades: list[str], verdicts: list[str], total: int, has_moves: bool
) -> Iterator[dict[str, Any]]:
    yield _choice("across", "x", {"generation": "generation", "elapsed": "time"})
    yield _choice("shade", "colour", {name: name for name in shades})
    for field, values in {**names, "verdict": verdicts}.items():
        if field != "worker" and len(values) > 1:
            yield _choice(field, field, {"": "all"} | {name: name for name in values})
        elif field != "worker":
            yield {"name": field, "value": ""}
    cells = {"": "all", "cell": "best of each cell"}
    if len(names["island"]) > 1:
        cells["island"] = "best of each island's cells"
    yield _choice("archive", "show", cells)
    yield _choice("tree", "edges", {"": "of the best", "all": "all"})
    if has_moves:
        yield _choice("migrations", "migrations", {"": "hidden", "shown": "shown"})
    text = {"input": "text", "name": "text", "placeholder": "kernel, change, cell"}
    yield {"name": "words", "value": "", "bind": text}
    slider = {"input": "range", "min": 1, "max": max(total, 2), "step": 1, "name": "the first individuals"}
    yield {"name": "until", "value": total, "bind": slider}


def _choice(name: str, title: str, options: Mapping[str, str]) -> dict[str, Any]:
    """A parameter that is chosen from a list; the first option holds at first."""
    chosen = {"input": "select", "options": [*options], "labels": [*options.values()], "name": title}
    return {"name": name, "value": next(iter(options)), "bind": chosen}


def _kept(link: str) -> list[dict[str, Any]]:
    """The transforms that leave the points that the filters let through, with their places and links."""
    return [
        {"calculate": TOLD, "as": "told"},
        _linked(link),
        {"filter": SHOWN},
        {"calculate": PLACE, "as": "x"},
        {"calculate": "datum[shade]", "as": "by"},
    ]


def _linked(link: str) -> dict[str, Any]:
    """The transform that gives each point the address of its card, or none."""
    address = json.dumps(link).replace("{task}", '" + datum.task + "').replace("{id}", '" + datum.card + "')
    return {"calculate": f"datum.card ? {address} : null" if link else "null", "as": "href"}


def _across(points: Rows) -> dict[str, Any]:
    """The encoding of generation or time."""
    ends = (max((point[name] or 0 for point in points), default=0) for name in ("generation", "elapsed"))
    generations, elapsed = ends
    _, unit, seconds = time_unit(elapsed)
    return {
        "field": "x", "type": "quantitative", "title": None,
        "scale": {
            "nice": False, "zero": False,
            "domain": {
                "expr": f"across == 'elapsed' ? [0, {max(elapsed, 1) / seconds}] : [-0.5, {generations} + 0.5]"
            },
        },
        "axis": {
            "labelExpr": f"across == 'elapsed' ? datum.label + ' {unit}' : datum.value % 1 ? '' : datum.value",
            "tickCount": 8, "tickMinStep": 1, "labelOverlap": True, "grid": False,
        },
    }  # fmt: skip


def _colours(names: Mapping[str, list[str]], shades: list[str]) -> dict[str, Any]:
    """The encoding of what is coloured: each name has its colour, whatever is filtered."""
    places = {name: place for field in shades for place, name in enumerate(names[field])}
    values = "".join(f"shade == '{field}' ? {json.dumps(names[field])} : " for field in shades) + "[]"
    return {
        "field": "by", "type": "nominal",
        "scale": {"domain": [*places], "range": [colour(place) for place in places.values()]},
        "legend": {"orient": "top", "values": {"expr": values}, "symbolType": "circle", "symbolSize": 70},
    }  # fmt: skip


def _timed(
    points: Rows, steps: Rows, moves: Rows, x: Mapping[str, Any], look: Mapping[str, Any], linked: Mapping[str, Any]
) -> dict[str, Any]:
    """The panel of kernels that have a time."""
    y = _up(points, steps)
    kernels = {
        "transform": [
            {"filter": f"indexof({json.dumps(TIMED)}, datum.verdict) >= 0"},
            {"calculate": CELL, "as": "place"},
            {"joinaggregate": [{"op": "max", "field": "certain", "as": "top"}], "groupby": ["place"]},
            {"filter": "!archive || datum.certain == datum.top"},
        ],
        "params": [{"name": "zoom", "bind": "scales", "select": {
            "type": "interval", "zoom": "wheel![event.shiftKey]",
            "translate": "[pointerdown[event.shiftKey], window:pointerup] > window:pointermove!",
        }}],
        "mark": MARK, "encoding": {"x": x, "y": {"field": "certain", **y}, **look},
    }  # fmt: skip
    layers = [_tree(x, y), kernels, *_paths(steps, x, y, look["href"], linked), *(_moved(x, y) if moves else ())]
    return {"width": WIDTH, "height": HEIGHT, "layer": layers}


def _up(points: Rows, steps: Rows) -> dict[str, Any]:
    """The encoding of speedups, but for their field."""
    found = [point["certain"] for point in points if point["certain"]]
    top = max([1.0, *found])
    found += [min(step[name], 1.5 * top) for step in steps for name in ("low", "speedup", "high") if step[name]]
    low, high = min([1.0, *found]), max([1.0, *found])
    low, high = low / 1.03, high * max((high / low) ** 0.08, 1.05)  # above the highest there is room for its label
    return {
        "type": "quantitative", "title": "certain speedup over naive",
        "scale": {"type": "log", "domain": [low, high], "nice": False}, "axis": TIMES,
    }  # fmt: skip


def _paths(
    steps: Rows, x: Mapping[str, Any], y: Mapping[str, Any], href: Mapping[str, Any], linked: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """The layers of the paths to the best kernels: lines, intervals, their ends' speedups, and estimates as rings."""
    path = {
        "data": {"name": "paths"},
        "transform": [
            {"filter": "datum.until <= until && (!task || datum.champion == task) && isValid(datum.certain)"},
            {"calculate": PLACE, "as": "x"}, linked,
        ],
    }  # fmt: skip
    champions = len({step["champion"] for step in steps})
    faint = {"expr": f"task || {champions} <= {MOST_STRONG} ? 1 : 0.2"}  # or they hide the others
    own = {"color": "var(--ink)", "clip": True}
    alone = json.dumps(champions == 1)
    certain = {"field": "certain", **y}
    return [
        {
            **path, "mark": {"type": "line", "strokeWidth": 1.5, "opacity": faint, **own},
            "encoding": {"x": x, "y": certain, "detail": {"field": "champion"},
                         "order": {"field": "step", "type": "quantitative"}},
        },
        {
            **path, "mark": {"type": "rule", "opacity": 0.5, **own},
            "encoding": {"x": x, "y": {"field": "low", **y}, "y2": {"field": "high"}},
        },
        {
            **path, "transform": [*path["transform"], {"filter": f"datum.step == 0 && (task || {alone})"}],
            "mark": {"type": "text", "dy": -10, "fontWeight": "bold", **own},
            "encoding": {"x": x, "y": certain, "text": {"field": "label"}},
        },
        {
            **path,
            "mark": {
                "type": "point", "size": 40, "strokeWidth": 1.2, "opacity": faint, "tooltip": {"content": "data"},
                **own,
            },
            "encoding": {"x": x, "y": {"field": "speedup", **y}, "href": href},
        },
    ]  # fmt: skip


def _tree(x: Mapping[str, Any], y: Mapping[str, Any]) -> dict[str, Any]:
    """The layer of every edge from a parent to a child that both have a time, where it is asked for; many are faint."""
    every = {"data": {"name": "individuals"}, "key": "until"}
    child = [*ENDS, "task", "mutator", "model", "verdict", "island", "id", "change", "cell"]
    parent = {name: f"parent_{name}" for name in ENDS}
    return {
        "data": {"name": "edges"},
        "transform": [
            {"filter": "tree"},
            {"lookup": "child", "from": {**every, "fields": child}},
            {"lookup": "parent", "from": {**every, "fields": [*parent]}, "as": [*parent.values()]},
            {"calculate": TOLD, "as": "told"},
            {"filter": f"{SHOWN} && isValid(datum.certain) && isValid(datum.parent_certain)"},
            {"calculate": PLACE, "as": "x"},
            {"calculate": PLACE.replace("datum.", "datum.parent_"), "as": "there"},
        ],
        "mark": {"type": "rule", "strokeWidth": 0.6, "opacity": FAINT, "color": "var(--ink)", "clip": True},
        "encoding": {
            "x": x, "x2": {"field": "there"}, "y": {"field": "certain", **y}, "y2": {"field": "parent_certain"},
        },
    }  # fmt: skip


def _moved(x: Mapping[str, Any], y: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The layers of migrations: an arrow at each and, over time, a line from where its kernel came to be."""
    own = {"color": "var(--ink)", "clip": True}
    moved = {
        "data": {"name": "migrations"},
        "transform": [
            {"filter": MOVED},
            {"calculate": PLACE, "as": "x"},
            {"calculate": "across == 'elapsed' ? datum.moved : datum.x", "as": "there"},
        ],
    }
    place = {"y": {"field": "certain", **y}}
    return [
        {
            **moved, "mark": {"type": "rule", "opacity": 0.4, "strokeDash": [3, 3], **own},
            "encoding": {"x": x, "x2": {"field": "there"}, **place},
        },
        {
            **moved,
            "mark": {
                "type": "point", "shape": "triangle-right", "size": 90, "strokeWidth": 1.2,
                "tooltip": {"content": "data"}, **own,
            },
            "encoding": {"x": {**x, "field": "there"}, **place},
        },
    ]  # fmt: skip


def _lanes(lanes: list[str], x: Mapping[str, Any], look: Mapping[str, Any]) -> dict[str, Any]:
    """The rows of kernels that have none of their own, by their verdict."""
    return {
        "width": WIDTH, "height": ROW * len(lanes),
        "transform": [{"filter": f"!archive && indexof({json.dumps(lanes)}, datum.verdict) >= 0"}],
        "mark": MARK,
        "encoding": {
            "x": {**x, "axis": None},
            "y": {"field": "verdict", "type": "nominal", "title": None,
                  "scale": {"domain": lanes, "padding": 0.5},
                  "axis": {"grid": True, "ticks": False, "domain": False}},
            **look,
        },
    }  # fmt: skip
