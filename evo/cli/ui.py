"""The command that serves a run's report while the search runs: ui."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from evo.cli.shared import RUNS, RunName, Runs
from operators.errors import UserError

INTERRUPTED = 130
LOOPBACK = "127.0.0.1"
uis = typer.Typer()


@uis.command()
def ui(
    run: RunName = "last",
    host: Annotated[
        str, typer.Option(help="Serve at this address. Any but a loopback one is open to others.")
    ] = LOOPBACK,
    port: Annotated[
        int | None,
        typer.Option(min=0, max=65535, help="0: any free one. Default: 8080, or any free one.", show_default=False),
    ] = None,
    open_: Annotated[bool, typer.Option("--open", help="Open it in the browser as well.")] = False,
    runs: Runs = RUNS,
) -> None:
    """Serve a run's report as a page that keeps up with the search, to this machine's browsers; Ctrl-C ends it."""
    from evo.folders import find_run
    from evo.report.charts import check_drawing
    from evo.report.page_maker import Maker
    from evo.report.server import is_loopback, server
    from evo.report.watched import Watched

    check_drawing()
    folder = find_run(runs, run)
    maker = Maker(folder)
    watched = Watched(folder, maker)
    try:
        with server(watched, host, port) as serving:
            if error := watched.first().error:
                raise UserError(error)
            name, number = serving.socket.getsockname()[:2]
            address = f"http://{f'[{name}]' if ':' in name else name}:{number}/"
            if not is_loopback(name):
                print(
                    f"evo: whoever reaches {address} can read this run, prompts and sources included", file=sys.stderr
                )
            print(f"run {folder} is shown at {address} (Ctrl-C ends it)", flush=True)
            watched.look()
            if open_:
                import webbrowser

                webbrowser.open(address)
            serving.serve_forever()
    except KeyboardInterrupt:
        maker.close()
        sys.stdout.flush()
        os._exit(INTERRUPTED)  # threads that still serve a reader are neither waited for nor stopped half-way by Python
    finally:
        maker.close()
