"""Limits on files, classes and packages, and on what may go unexplained; `tests.structure` measures."""

from __future__ import annotations

import ast
import subprocess
import sys

import pytest

from tests.structure import PACKAGES, ROOT, Module, Structure, percentile, share

MOST_FILE_LINES = 900
MOST_CLASS_LINES = 500
MOST_SWALLOWING = 6
LEAST_DOCUMENTED = 95
"""Percent."""
MOST_MODULES = 18
"""Modules in one folder."""
MOST_AT_ROOT = 16
"""Modules that stand in evo/ itself."""
MOST_NAMESAKES = 0
"""Class names that several packages use."""
MOST_README_LINES = 250
MOST_SINGLE = 15
"""Percent of modules that one other module alone imports: programs of their own processes, which their parents start by
path; leaves of a registry; engines of one command; ideas of their own."""
MOST_WITH_SQL = 0
"""Modules with SQL beside the store and its rows."""
FLOORS = {
    "operators": (
        "operators cupy_stream drawing dtypes errors identity libraries shared",
        "expression extension files kernel relations",
        "definition",
        "catalog champions plan",
        "beginning importing.graphs prelude",
        "importing.rounding",
        "importing",
    ),
    "fitness": (
        "fitness evaluation install sandbox words",
        "emulator.ptx joint oracle profiling",
        "judging",
        "cpu cuda.compile testing",
        "cuda.running",
        "cuda.profiling emulator",
        "cuda",
        "targets",
    ),
    "mutators": (
        "mutators analysis bandit bench briefing edits",
        "base line_edits mutants",
        "given llm prompts recombine registry tuning",
        "asking routes testing transforms",
    ),
    "evo": (
        "budget doctor inbox individual packaging.runtime version workers",
        "lineage",
        "charts rows store strategies",
        "api workbench",
        "lessons",
        "config",
        "check_operator compatibility evaluate folders search",
        "evo cluster",
        "session",
        "compare replay",
        "report",
        "outside packaging report.comparison report.ui track",
        "repository",
        "cli",
    ),
}
"""The rooms of each package (packages in it, and single modules), from the ground up: imports lead down alone."""


@pytest.fixture(scope="module")
def product() -> Structure:
    return Structure.read()


def test_files_are_short(product: Structure) -> None:
    long = {p: n for p, n in product.file_lines.items() if n > MOST_FILE_LINES}
    assert not long


def test_classes_are_short(product: Structure) -> None:
    long = {p: n for p, n in product.class_lines.items() if n > MOST_CLASS_LINES}
    assert not long


def test_bodies_are_short(product: Structure) -> None:
    assert percentile(list(product.body_lines.values()), 95) < 40


def test_handlers_that_swallow_everything_are_rare(product: Structure) -> None:
    assert len(product.swallowing) <= MOST_SWALLOWING, product.swallowing


def test_what_is_public_is_documented(product: Structure) -> None:
    bare = [place for place, told in product.public.items() if not told]
    assert share(product.public) >= LEAST_DOCUMENTED, bare


def test_modules_do_not_import_each_other_in_circles(product: Structure) -> None:
    assert product.cycles == []


def test_packages_do_not_import_each_other_in_circles(product: Structure) -> None:
    assert product.room_cycles == []


def test_imports_lead_down_from_floor_to_floor(product: Structure) -> None:
    floors = {
        name if name == top else f"{top}.{name}": floor
        for top, rows in FLOORS.items()
        for floor, row in enumerate(rows)
        for name in row.split()
    }
    rooms = {room: arrows for room, arrows in product.rooms.items() if room.partition(".")[0] in FLOORS}
    assert rooms.keys() <= floors.keys(), "a new package or module needs a floor"
    up = [
        f"{room} -> {other}: {modules}"
        for room, arrows in rooms.items()
        for other, modules in arrows.items()
        if other.partition(".")[0] == room.partition(".")[0] and floors[other] >= floors[room]
    ]
    assert not up


def test_no_folder_holds_too_many_modules(product: Structure) -> None:
    full = {place: count for place, count in product.folders.items() if count > MOST_MODULES}
    assert not full
    assert product.folders["evo"] <= MOST_AT_ROOT


def test_class_names_are_used_once(product: Structure) -> None:
    assert len(product.namesakes) <= MOST_NAMESAKES, product.namesakes


def test_the_readme_is_short() -> None:
    assert (ROOT / "README.md").read_text(encoding="utf-8").count("\n") <= MOST_README_LINES


def test_modules_with_one_importer_get_no_more(product: Structure) -> None:
    assert share(product.single) <= MOST_SINGLE, [place for place, alone in product.single.items() if alone]


def test_sql_spreads_no_further(product: Structure) -> None:
    assert len(product.with_sql) <= MOST_WITH_SQL, product.with_sql


SAMPLE = '''"""A module."""

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import sample.other


class Shape:
    """A base."""

    def area(self) -> float:
        """In square metres."""
        raise NotImplementedError


class Square(Shape):
    side = 1.0
    """In metres."""

    def area(self) -> float:
        # A comment, of which the line below has none: that one is for a tool.
        return self.side**2  # noqa: B018

    def told(self) -> None:
        try:
            os.getpid()
        except Exception:
            pass
        except (ValueError, BaseException):
            raise
        def inner() -> None: ...


def bare() -> None: ...


def _private() -> None: ...
'''


def sample(text: str = SAMPLE, name: str = "sample") -> Module:
    return Module(ROOT / "sample" / f"{name}.py", ast.parse(text), text)


def test_what_lacks_a_docstring_is_found_and_what_a_base_class_describes_is_not() -> None:
    public = Structure((sample(),)).public
    assert {place.split(":")[-1]: told for place, told in public.items()} == {
        "Shape": True,
        "Shape.area": True,
        "Square": False,
        "Square.area": True,
        "Square.told": False,
        "bare": False,
    }
    assert share(public) == 50


def test_lines_of_code_comments_and_handlers_are_counted() -> None:
    module = sample()
    (area,) = [f for f in module.functions if f.name == "area" and "side" in ast.unparse(f)]
    assert module.body_lines(area) == 1
    assert [SAMPLE.split("\n")[line - 1].strip()[:11] for line in sorted(module.comment_lines)] == ["# A comment"]
    assert [SAMPLE.split("\n")[line - 1].strip() for line in module.swallowing] == ["except Exception:"]


def test_a_circle_of_imports_is_found_where_it_holds_when_modules_load() -> None:
    texts = {
        "first": "from sample import second",
        "second": "from sample.third import x",
        "third": "import sample.first",
        "late": "def f():\n    import sample.late2",
        "late2": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import sample.late2\nimport sample.late",
    }
    modules = tuple(sample(text, name) for name, text in texts.items())
    assert Structure(modules).cycles == [("sample.first", "sample.second", "sample.third", "sample.first")]


def test_what_stands_between_packages_is_measured() -> None:
    texts = {
        "sample": "",
        "sample.low": "",
        "sample.low.one": 'ASKED = "select a from b"\nclass Name: ...',
        "sample.low.two": '"""To select words from a page."""\ndef late():\n    import sample.high.three',
        "sample.high": "",
        "sample.high.three": "from sample.low import one\nclass Name: ...",
    }
    packages = ("sample", "sample.low", "sample.high")
    places = {name: name.replace(".", "/") + ("/__init__" if name in packages else "") for name in texts}
    structure = Structure(
        tuple(Module(ROOT / f"{places[name]}.py", ast.parse(text), text) for name, text in texts.items())
    )
    assert structure.rooms["sample.low"] == {"sample.high": ["sample.low.two"]}
    assert structure.room_cycles == [("sample.low", "sample.high", "sample.low")]
    assert structure.folders == {"sample/low": 2, "sample/high": 1}
    assert structure.single == {"sample/low/one.py": True, "sample/low/two.py": False, "sample/high/three.py": True}
    assert structure.namesakes == {"Name": ["sample/low/one.py", "sample/high/three.py"]}
    assert structure.with_sql == ["sample/low/one.py"]


def test_percentiles_are_the_nearest_ranks() -> None:
    assert [percentile([3, 1, 2, 4], percent) for percent in (1, 50, 95, 100)] == [1, 2, 4, 4]


def test_every_package_is_measured(product: Structure) -> None:
    assert {place.split("/")[0] for place in product.file_lines} == set(PACKAGES)


@pytest.mark.slow
def test_every_program_that_measures_can_be_imported() -> None:
    """Nothing else does so: mypy does not look at them, and many of them take a GPU or hours."""
    program = """
import importlib, pkgutil, tests.bench

for module in pkgutil.walk_packages(tests.bench.__path__, "tests.bench."):
    if not module.name.endswith("__main__"):
        importlib.import_module(module.name)
"""
    subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=True)
