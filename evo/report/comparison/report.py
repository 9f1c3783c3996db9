"""The report of a comparison: one file of HTML, one of Markdown, and Parquet. It shows what others conclude."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

import pyarrow.parquet as pq

from evo.compare.cells import CellResult
from evo.compare.leaks import Hermetic
from evo.report.charts import check_drawing
from evo.report.comparison.data import Material, material
from evo.report.comparison.sections import document
from evo.report.comparison.tables import tables
from evo.report.render import html, markdown
from operators.errors import UserError

HTML, MARKDOWN = "report.html", "report.md"


def check_report(out: Path) -> None:
    """Raise UserError where no report could be written to the folder `out`, which it makes."""
    check_drawing()
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _unwritable(out, error) from None


def write_report(
    folder: Path, out: Path, results: Sequence[CellResult] | None = None, checked: Hermetic | None = None
) -> list[Path]:
    """Write the report of the comparison in `folder` to the folder `out`; return its files. It raises UserError.

    Files of an earlier report are replaced. `results` and `checked` are those of `material`.
    """
    return write(material(folder, results, checked), out)


def write(seen: Material, out: Path) -> list[Path]:
    """Write the report of material that was read already; see `write_report`."""
    said = document(seen, time.time())
    texts = {HTML: html(said), MARKDOWN: markdown(said)}
    parquet = {f"{name}.parquet": table for name, table in tables(seen).items()}
    check_report(out)
    try:
        for name, text in texts.items():
            (out / name).write_text(text, encoding="utf-8")
        for name, table in parquet.items():
            pq.write_table(table, out / name)
    except OSError as error:
        raise _unwritable(out, error) from None
    return [out / name for name in (*texts, *parquet)]


def _unwritable(out: Path, error: OSError) -> UserError:
    return UserError(f"--report {out}: cannot be written: {error.strerror}; name a folder")
