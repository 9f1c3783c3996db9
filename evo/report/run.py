"""The report of a run: one file of HTML that needs no network. It shows what queries to the run answer."""

from __future__ import annotations

import time
from pathlib import Path

from evo.api import Run
from evo.report.charts import check_drawing
from evo.report.render import html
from evo.report.run_data import material
from evo.report.run_sections import document
from operators.errors import UserError


def report_page(folder: Path, *, live: str | None = None) -> str:
    """The report of the run in `folder` as it now is; `live`: as `evo.report.render.html`. It raises UserError."""
    return html(document(material(Run(folder)), time.time()), live=live)


def write_report(folder: Path, out: Path, *, replace: bool = False) -> Path:
    """Write the report of the run in `folder` to the file `out`, which must be new unless it may `replace` one.

    It raises UserError.
    """
    check_drawing()
    if out.exists() and not replace:
        raise UserError(f"--out {out}: exists already; name another file, or say --force")
    if not out.parent.is_dir():  # rather now than when all is read
        raise UserError(f"--out {out}: cannot be written: there is no folder {out.parent}")
    text = report_page(folder)
    try:
        with out.open("w" if replace else "x", encoding="utf-8", errors="backslashreplace") as file:
            file.write(text)
    except FileExistsError:
        raise UserError(f"--out {out}: exists already; name another file, or say --force") from None
    except OSError as error:
        raise UserError(f"--out {out}: cannot be written: {error.strerror}; name a file") from None
    return out
