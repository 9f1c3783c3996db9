"""Answers as patches of numbered lines."""

from __future__ import annotations

import json
import re
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mutators.edits import AnswerError
from mutators.line_edits import line_edited, numbered

FILE = "one\ntwo\nthree\nfour\n"


@pytest.mark.parametrize(
    ("edits", "after"),
    [
        ([{"op": "replace", "from": 2, "to": 3, "text": "2\n3"}], "one\n2\n3\nfour\n"),
        ([{"op": "replace", "from": 2, "text": "2"}], "one\n2\nthree\nfour\n"),
        ([{"op": "insert", "after": 0, "text": "zero"}, {"op": "insert", "after": 4, "text": "five\n"}],
         "zero\none\ntwo\nthree\nfour\nfive\n"),
        ([{"op": "delete", "from": 1, "to": 2}, {"op": "insert", "after": 3, "text": "x"}], "three\nx\nfour\n"),
    ],
)  # fmt: skip
def test_line_edits_change_the_lines_that_were_shown(edits: list[dict[str, Any]], after: str) -> None:
    answer = f'CHANGE: {{braces}} in words\n\n```json\n{{"edits": {json.dumps(edits)}}}\n```\nThat is all {{so}}.'
    assert line_edited(FILE, answer) == after


@pytest.mark.parametrize(
    ("edits", "words"),
    [
        ([], "is empty"),
        (["two"], "`op` must be"),
        ([{"op": "move", "from": 1}], "`op` must be"),
        ([{"op": "delete", "from": 4, "to": 5}], "`to` must be the number of a line, 4 to 4"),
        ([{"op": "delete", "from": True}], "`from` must be"),
        ([{"op": "insert", "after": 9, "text": "x"}], "`after` must be the number of a line, 0 to 4"),
        ([{"op": "replace", "from": 1, "to": 3, "text": "x"}, {"op": "delete", "from": 3}], "edits 1 and 2 want"),
        ([{"op": "replace", "from": 1, "text": "one"}], "is the one you were given"),
        ([{"op": "replace", "from": 1, "text": 5}], "`text` must be a string"),
    ],
)
def test_line_edits_that_mean_nothing_are_told_so(edits: list[Any], words: str) -> None:
    with pytest.raises(AnswerError, match=re.escape(words)):
        line_edited(FILE, json.dumps({"edits": edits}))


def test_an_answer_without_line_edits_may_hold_a_child_in_the_usual_forms() -> None:
    assert line_edited(FILE, "<<<<<<< SEARCH\ntwo\n=======\n2\n>>>>>>> REPLACE") == "one\n2\nthree\nfour\n"
    with pytest.raises(AnswerError, match="holds neither"):
        line_edited(FILE, 'I would rather not {"edit": 3}')


@given(st.text(alphabet=st.characters(codec="utf-8", exclude_characters="\r"), max_size=60), st.text(max_size=80))
def test_no_answer_breaks_the_reader_of_line_edits(source: str, answer: str) -> None:
    with suppress(AnswerError):
        line_edited(source, answer)
    assert [line.partition("| ")[2] for line in numbered("a\nb\n").split("\n")] == ["a", "b"]
