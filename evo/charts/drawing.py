"""Drawings in Vega-Lite: as SVG or PNG without any script, interactive in a page, and as notebooks show them.

Colours are names that the page gives values to (`assets/colours.css`), for light, dark and paper. vl-convert-python
holds Vega itself; it is imported where the first drawing is made.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from html import escape
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from fitness.sandbox.native import cache_folder, publish
from operators.errors import UserError, unknown
from operators.files import writing

ASSETS = Path(__file__).parent / "assets"
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
    "legend": {
        "labelColor": "var(--ink)", "titleColor": "var(--ink)", "labelFontSize": 11, "labelLimit": 160, "title": None,
        "titleFontWeight": "normal", "symbolOpacity": 1,
    },
}  # fmt: skip


def colour(place: int) -> str:
    """The colour of the series at this place."""
    return f"var(--series-{place % SERIES})"


def dashes(place: int) -> list[int]:
    """The dashes of the series at this place."""
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


@dataclass(frozen=True)
class Figure:
    """A drawing in Vega-Lite, with what it shows in words. A notebook shows it; `save` writes it to a file."""

    title: str
    told: str
    """For those who do not see it; its numbers are in a table beside it."""
    spec: Mapping[str, Any] = field(repr=False)

    @property
    def svg(self) -> str:
        """The drawing as one element `svg`. It raises UserError where the library that draws is not installed."""
        return _svg(self.spec, self.told)

    def save(self, file: str | Path) -> Path:
        """Write it as .html, .svg, .png or .json (Vega-Lite), as the name ends. It raises UserError."""
        place = Path(file)
        made: Mapping[str, Callable[[], bytes]] = {
            ".html": self._page,
            ".svg": lambda: str(_converter().vegalite_to_svg(on_paper(self.spec))).encode(),
            ".png": lambda: bytes(_converter().vegalite_to_png(on_paper(self.spec), scale=2)),
            ".json": lambda: json.dumps(on_paper(self.spec)).encode(),
        }
        if place.suffix not in made:
            raise UserError(f"{place}: {unknown('ending', place.suffix, made)}")
        with writing(place):
            place.write_bytes(made[place.suffix]())
        return place

    def _repr_html_(self) -> str:
        return f"<div style='background: #fff; max-width: 60rem'>{_svg(on_paper(self.spec), self.told)}</div>"

    def _page(self) -> bytes:
        return _page(self.title, f"<figure><figcaption>{escape(self.title)}</figcaption>{self.svg}</figure>").encode()


def _converter() -> Any:
    """The library that draws. It raises UserError where it is not installed."""
    check_drawing()
    import vl_convert

    return vl_convert


def _svg(spec: Mapping[str, Any], told: str) -> str:
    drawn: str = _converter().vegalite_to_svg({"config": CONFIG, **spec})
    _, _, inside = drawn.partition("<svg ")
    return f'<svg role="img" aria-label="{escape(told)}" {inside}'


# --- colours ---------------------------------------------------------------------------------------------------------


@cache
def style(name: str = "colours.css") -> str:
    """The text of a style sheet of drawings."""
    return (ASSETS / name).read_text(encoding="utf-8")


@cache
def _light() -> Mapping[str, str]:
    """The light colours by their names, which a style sheet gives first."""
    return dict(re.findall(r"(--[\w-]+): (#\w+)", style().partition("@media")[0]))


def on_paper(spec: Mapping[str, Any]) -> dict[str, Any]:
    """The drawing for where no page gives values to its colours: the light ones, on white."""
    text = json.dumps({**spec, "config": {**CONFIG, **spec.get("config", {}), "background": "#ffffff"}})
    found: dict[str, Any] = json.loads(re.sub(r"var\((--[\w-]+)\)", lambda name: _light()[name[1]], text))
    return found


# --- interactive drawings --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Interactive(Figure):
    """A drawing of many points that a page draws on a canvas by script, with filters."""

    said: str = ""
    """The caption below it: what is in it, and what is left out."""

    @property
    def packed(self) -> str:
        """The drawing for the script of a page: JSON, compressed, as text. Its rows stand in columns."""
        data = {name: _columns(rows) for name, rows in self.spec["datasets"].items()}
        return packed(json.dumps({**self.spec, "config": CONFIG, "datasets": data}, separators=(",", ":")))

    def _repr_html_(self) -> str:
        page = escape(self._page().decode(), quote=True)
        return f'<iframe srcdoc="{page}" style="width: 100%; height: 47rem; border: 0"></iframe>'

    def _page(self) -> bytes:
        library = f'<script type="text/plain" id="vega">{vega()[0]}</script>'
        return _page(
            self.title, f"{self.element}{library}<script>{style('picture.js')}pictures(document);</script>"
        ).encode()

    @property
    def element(self) -> str:
        """The element of a page that its script draws it in."""
        return (
            f'<figure class="picture" data-told="{escape(self.told)}"><figcaption>{escape(self.title)}</figcaption>'
            '<form class="controls"></form><div class="canvas"></div>'
            "<noscript><p>This picture needs JavaScript; the tables have its numbers.</p></noscript>"
            f'<p class="said">{escape(self.said)}</p>'
            f'<script type="text/plain">{self.packed}</script></figure>'
        )


def _columns(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Rows by columns; in those of texts each text stands once."""
    columns: dict[str, Any] = {}
    for name in rows[0] if rows else ():
        values = [row[name] for row in rows]
        texts = list(dict.fromkeys(values)) if any(isinstance(value, str) for value in values) else []
        if texts and len(texts) < len(values):
            places = {text: place for place, text in enumerate(texts)}
            columns[name] = {"of": texts, "at": [places[value] for value in values]}
        else:
            columns[name] = values
    return columns


def packed(text: str) -> str:
    """The text, compressed, as text that a page may hold."""
    return base64.b64encode(gzip.compress(text.encode(), mtime=0)).decode()


SNIPPET = "globalThis.vegaEmbed = vegaEmbed;"


@cache
def vega() -> tuple[str, str]:
    """Vega's script, packed, and its digest for a page's policy. It is put together once on a machine, for seconds."""
    converter = _converter()
    found = converter.get_vega_version(), converter.get_vegalite_versions()[-1], converter.get_vega_embed_version()
    kept = cache_folder() / f"vega-{'-'.join(found)}.js"
    if not kept.exists():
        publish(kept, converter.javascript_bundle(SNIPPET).encode())
    code = f"(() => {{{kept.read_text(encoding='utf-8')}}})();"  # its names are none of the page's
    return packed(code), base64.b64encode(hashlib.sha256(code.encode()).digest()).decode()


def _page(title: str, body: str) -> str:
    """A page of one drawing, which needs no network."""
    return (
        f'<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        "<style>body { font: 1rem/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); }"
        f"{style()}{style('picture.css')}</style></head><body>{body}</body></html>"
    )
