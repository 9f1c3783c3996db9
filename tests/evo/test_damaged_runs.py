"""Every command on run folders that are wrong, cut off or another program's: one line and an exit code, no
traceback."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pytest

from evo.session import LocalBackend
from evo.store import Store
from fitness.testing import scripted
from tests.choosing import some_slow
from tests.evo.test_cli import evo
from tests.inline import InlinePool

AXPB = str(Path(__file__).parents[1] / "data" / "axpb")


@pytest.fixture(scope="module", autouse=True)
def quickly_made() -> None:
    """The tables of a damaged database are read from it itself."""


def edited(statement: str) -> Callable[[Path], None]:
    def damage(file: Path) -> None:
        with duckdb.connect(str(file)) as connection:
            connection.execute(statement)

    return damage


def flip(file: Path) -> None:
    content, place = bytearray(file.read_bytes()), random.Random(7)
    for _ in range(200):
        content[place.randrange(len(content))] = place.randrange(256)
    file.write_bytes(content)


def cut(share: float) -> Callable[[Path], None]:
    return lambda file: file.write_bytes(file.read_bytes()[: int(share * file.stat().st_size)]) and None


def foreign(table: str) -> Callable[[Path], None]:
    def replace(file: Path) -> None:
        file.unlink()
        edited(f"create table {table} (x int)")(file)

    return replace


def unbegun(file: Path) -> None:
    file.unlink()
    Store(file.parent, create=True).close()


def directory(file: Path) -> None:
    file.unlink()
    file.mkdir()


DAMAGES: dict[str, Callable[[Path], Any]] = {
    "empty": lambda file: file.write_bytes(b""),
    "text": lambda file: file.write_text("hello " * 1000),
    "cut early": cut(0.1),
    "cut": cut(0.5),
    "cut late": cut(0.95),
    "flipped": flip,
    "foreign": foreign("mine"),
    "foreign with a table of our name": foreign("runs"),
    "directory": directory,
    "killed before it began": unbegun,
    "configuration of another shape": edited("update runs set config_json = '{\"operators\": 3}'"),
    "configuration cut": edited("update runs set config_json = '{'"),
    "configuration a list": edited("update runs set config_json = '[1]'"),
    "strategy unknown": edited("update runs set config_json = replace(config_json, 'islands', 'gone')"),
    "operator gone": edited("update runs set config_json = replace(config_json, 'axpb', 'gone')"),
    "tasks unknown": edited("update asks set task = 'nosuch/fp32/cpu'"),
    "requests of another version": edited("update asks set digest = 'x'"),
    "no tables": edited("drop view best; drop table timings cascade"),
    "another format": edited("update schema_version set version = 99"),
    "log of noise": lambda file: file.with_name("evo.duckdb.wal").write_bytes(random.Random(7).randbytes(5000)),
    "counts of noise": lambda file: file.with_name("evo.rows").write_bytes(b"{]"),
    "socket of nobody": lambda file: file.with_name("evo.sock").write_bytes(b""),
}
COMMANDS = (
    ("status", "--json"), ("best", "--show"), ("lineage",), ("sql", "select * from best"), ("replay",),
    ("resume", "--budget", "7evals"),
)  # fmt: skip


@pytest.fixture
def copied(scripted_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of a run, whose stages are scripted when it goes on."""
    monkeypatch.setattr(LocalBackend, "pool", lambda _, config, *__: InlinePool(dict(scripted(config.tasks()))))
    folder = tmp_path / "run"
    folder.mkdir()
    shutil.copy(scripted_folder / "evo.duckdb", folder)
    return folder


@pytest.mark.parametrize("damage", some_slow(DAMAGES, 1))
def test_a_damaged_run_is_one_line(damage: str, copied: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    DAMAGES[damage](copied / "evo.duckdb")
    for name, *rest in COMMANDS:
        code, out, err = evo(monkeypatch, capsys, name, str(copied), *rest)
        said = err.strip().splitlines()
        if code == 0:
            assert len(said) <= 1, (name, err)  # a note at most
        elif name == "replay" and code == 1:  # where it differs is its answer
            assert "then" in out
        else:
            assert (code, out, len(said)) == (2, "", 1), (name, code, out, err)
            assert said[0].startswith("evo: ") and len(said[0]) < 600


@pytest.mark.parametrize("change", ["source = source || '// not judged'", "values_json = '{\"TILE\": 2}'"])
def test_a_file_in_the_place_of_the_one_that_was_judged_has_no_verdict(
    change: str, copied: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    edited(f"update kernels set {change}")(copied / "evo.duckdb")
    for name, *rest in (("best", "--show"), ("best", "--package", str(tmp_path / "taken")), *COMMANDS[-1:]):
        code, _, err = evo(monkeypatch, capsys, name, str(copied), *rest)
        assert code == 2 and "is not the one that was judged under this id" in err, (name, code, err)
