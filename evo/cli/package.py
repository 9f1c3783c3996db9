"""The command that packages a kernel file: a kernel to take away."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

packages = typer.Typer()


@packages.command()
def package(
    operator: Annotated[str, typer.Argument(help="Name, or folder of your own.")],
    kernel: Annotated[str, typer.Argument(help="Kernel file, or one of the operator's own, such as champions/h200.")],
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="New folder; nothing is overwritten.")],
    target: Annotated[str, typer.Option(help="cpu or cuda; default: by the file's ending.")] = "",
    dtype: Annotated[str, typer.Option(help="Element type.")] = "",
) -> None:
    """Write a kernel into a folder that works without kernel-evo: code, loader, test, verdict, lineage."""
    from evo.packaging.package import write_package
    from evo.packaging.subject import from_file

    write_package(from_file(operator, kernel, target=target, dtype=dtype), folder)
    print(f"{operator}: {kernel} written to {folder}", file=sys.stderr)
