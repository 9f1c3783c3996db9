from __future__ import annotations

import tomllib

import pytest

from mutators.analysis.plan_edit import launch_list, with_tunables

LAUNCH = '[[launch]]\nkernel = "f"\nargs = []\n'


def header(text: str) -> dict[str, object]:
    return tomllib.loads(text.split("/*! evo", 1)[1].split("*/", 1)[0])


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (f"/*! evo\n{LAUNCH}*/\n", f"/*! evo\n[tune]\nX = [1, 2]\n\n{LAUNCH}*/\n"),
        (
            f"/*! evo\ndeterministic = false\n\n{LAUNCH}*/\n",
            f"/*! evo\ndeterministic = false\n\n[tune]\nX = [1, 2]\n\n{LAUNCH}*/\n",
        ),
        (
            f"/*! evo\n[tune] # knobs\nA = [1,\n  2]  # first\n# last\n\n{LAUNCH}*/\n",
            f"/*! evo\n[tune] # knobs\nA = [1,\n  2]  # first\nX = [1, 2]\n# last\n\n{LAUNCH}*/\n",
        ),
        (f"/*! evo\n{LAUNCH}\n[tune]\nA = [1]\n*/\n", f"/*! evo\n{LAUNCH}\n[tune]\nA = [1]\nX = [1, 2]\n*/\n"),
        (f"/*! evo\n{LAUNCH}\n[tune]\n*/\n", f"/*! evo\n{LAUNCH}\n[tune]\nX = [1, 2]\n*/\n"),
    ],
)
def test_tunables_are_added_and_the_rest_stands(before: str, after: str) -> None:
    assert with_tunables(before, {"X": (1, 2)}) == after
    assert header(after)["tune"]["X"] == [1, 2]  # type: ignore[index]


@pytest.mark.parametrize("form", ["tune = { A = [1] }\n", "tune.A = [1]\n"])
def test_unusual_forms_are_left_alone(form: str) -> None:
    assert with_tunables(f"/*! evo\n{form}{LAUNCH}*/\n", {"X": (1,)}) is None


def test_without_tunables_nothing_changes() -> None:
    assert with_tunables("no header", {}) == "no header"
    assert with_tunables("no header", {"X": (1,)}) is None


def test_one_element_of_the_right_launch_is_set() -> None:
    one = '[[launch]]\nkernel = "f"\ngrid = ["n", "é", 3]\nblock = [128]\n'
    text = f"/*! evo\n{one}{one}*/\n"
    edit = launch_list(text, 1, "grid", 2, "m")
    assert edit
    data = text.encode()
    changed = (data[: edit.start] + edit.text.encode() + data[edit.end :]).decode()
    launches = header(changed)["launch"]
    assert [launch["grid"] for launch in launches] == [["n", "é", 3], ["n", "é", "m"]]  # type: ignore[attr-defined]
    assert launch_list(text, 2, "grid", 0, "m") is None
    assert launch_list(text, 0, "grid", 3, "m") is None
    assert launch_list(text, 0, "cluster", 0, "m") is None
