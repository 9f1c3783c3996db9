"""Figures of reports: Vega-Lite, drawn here as SVG, so that whoever opens a report needs no script and no network.

Colours are names that the page gives values to, for light, dark and paper. vl-convert-python holds Vega itself; it is
imported where the first figure is drawn. The same specifications drawn in a browser would be interactive.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from importlib.util import find_spec
from typing import Any

from operators.errors import UserError

SERIES = 12
"""Colours that there are; further series repeat them with other dashes."""
DASHES = ([1, 0], [7, 2], [2, 2], [8, 2, 2, 2])
WIDTH, HEIGHT = 330, 210
FONT = "Arial, Helvetica, sans-serif"
CONFIG: Mapping[str, Any] = {
    "background": None,
    "font": FONT,
    "padding": {"left": 10, "right": 10, "top": 5, "bottom": 5},
    "view": {"stroke": None},
    "axis": {
        "labelColor": "var(--ink)", "titleColor": "var(--ink)", "domainColor": "var(--line)",
        "tickColor": "var(--line)", "gridColor": "var(--grid)", "labelFontSize": 11, "titleFontSize": 12,
        "titleFontWeight": "normal", "labelLimit": 150,
    },
    "text": {"color": "var(--ink)", "fontSize": 11},
    "rule": {"color": "var(--line)"},
}  # fmt: skip


def colour(place: int) -> str:
    """That of the series at this place."""
    return f"var(--series-{place % SERIES})"


def dashes(place: int) -> list[int]:
    """Those of the series at this place."""
    return DASHES[(place + place // SERIES) % len(DASHES)]


def series_scales(series: Sequence[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The scales of colours and of dashes, by the names of series."""
    places = range(len(series))
    ranges = [colour(place) for place in places], [dashes(place) for place in places]
    return {"domain": [*series], "range": ranges[0]}, {"domain": [*series], "range": ranges[1]}


def check_drawing() -> None:
    """Raise UserError where the library that draws is not installed."""
    if find_spec("vl_convert") is None:
        raise UserError(
            "figures of reports need vl-convert-python: .venv/bin/python -m pip install -c constraints.txt "
            "vl-convert-python"
        )


def svg(spec: Mapping[str, Any], told: str) -> str:
    """The drawing of a Vega-Lite specification, one element `svg` with `told` for those who do not see it.

    It raises UserError where the library is not installed.
    """
    check_drawing()
    import vl_convert

    drawn: str = vl_convert.vegalite_to_svg({"config": CONFIG, **spec})
    _, _, inside = drawn.partition("<svg ")
    return f'<svg role="img" aria-label="{escape(told)}" {inside}'
