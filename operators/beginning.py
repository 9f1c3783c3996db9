"""Begins an operator of one's own: a copy of one that is right, under another name, to be changed.

What there is to begin from: the templates in `shared/templates`, an operator for each form that has no template, any
operator of the package, and any folder.
"""

from __future__ import annotations

import keyword
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from operators.catalog import ROOT, folders, load
from operators.definition.spec import CPP_KEYWORDS, IDENTIFIER, RESERVED, Operator
from operators.errors import UserError, unknown
from operators.files import read_text
from operators.libraries import LIBRARIES
from operators.plan.reading import parse_plan

TEMPLATES = ROOT / "shared" / "templates"
FORMS: Mapping[str, str] = {
    "batched_product": "batched_matrix_mul", "square_product": "symmetric_matrix_mul", "sparse_vector": "spmv_csr",
    "sparse_matrix": "spmm_csr",
}  # fmt: skip
"""Forms of operators/shared without a template, and an operator that is like each."""


def templates() -> tuple[str, ...]:
    """The names of the templates."""
    return tuple(sorted(path.parent.name for path in TEMPLATES.glob("*/operator.toml")))


def begin(name: str, like: str, folder: Path) -> list[Path]:
    """Write the files of a new operator into a new folder, and return them.

    `like` names what it begins from. It raises UserError where the name cannot be used, nothing is called `like`, or
    the folder is there already.
    """
    model = _model(like)
    _check_name(name, model)
    written = {path: _renamed(path, model, name) for path in _files(model)}
    try:
        folder.mkdir(parents=True)
    except FileExistsError:
        raise UserError(f"{folder} is there already; name another folder with --out") from None
    made = []
    for path, text in written.items():
        made.append(folder / path.name)
        made[-1].write_text(text, encoding="utf-8")
    return made


def _model(like: str) -> Operator:
    if (TEMPLATES / like / "operator.toml").is_file() and like.isidentifier():
        return load(str(TEMPLATES / like))
    if "/" in like or like.startswith((".", "~")):
        return load(like)
    name = FORMS.get(like, like)
    if name not in folders():
        known = [*templates(), *FORMS, *folders()]
        raise UserError(f"--like: {unknown('template, form or operator', like, known)}")
    return load(name)


def _check_name(name: str, model: Operator) -> None:
    if not IDENTIFIER.fullmatch(name):
        raise UserError(f"{name!r} cannot be an operator's name: letters, digits and _, a letter first")
    if name in RESERVED | CPP_KEYWORDS or keyword.iskeyword(name):
        raise UserError(f"{name} cannot be an operator's name: it is reserved")
    if name in model.names:
        raise UserError(f"{name} is a dim, tensor or scalar of {model.name}: choose another name")
    if name in folders():
        raise UserError(f"there is an operator {name} already: choose another name (--like {name} begins from it)")


def _files(model: Operator) -> Iterator[Path]:
    """The files that are copied: no champions and no tuned kernels, which would be of no use to another operator."""
    yield model.folder / "operator.toml"
    yield model.folder / "reference.py"
    if (model.folder / LIBRARIES).is_file():
        yield model.folder / LIBRARIES
    yield from (model.ancestor("naive", target) for target in model.dtypes)


def _renamed(path: Path, model: Operator, name: str) -> str:
    """The text of a file, with the operator's name in its definition and in its kernels."""
    text = read_text(path)
    if path.name == "operator.toml":
        said = rf"""^[ \t]*(["']?)name\1\s*=\s*(["']){model.name}\2"""
        return re.sub(said, f'name = "{name}"', text, count=1, flags=re.MULTILINE)
    target = {".cpp": "cpu", ".cu": "cuda"}.get(path.suffix)
    if not target:
        return text
    launches = parse_plan(text, model, target, name=str(path)).launches
    launched = {re.split(r"[<(]", launch.kernel)[0].strip() for launch in launches}
    for function in launched - model.names:
        new = name if len(launched) == 1 else function.replace(model.name, name, 1)
        text = re.sub(rf"\b{re.escape(function)}\b", new, text)
    return text
