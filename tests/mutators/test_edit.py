"""Answers of language models, as they are and as they should not be."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from mutators.edits import MAX_DESCRIPTION, AnswerError, Block, child_source, description, edited, parse_blocks
from operators.catalog import load

NAIVE = load("softmax").ancestor("naive", "cpu").read_text()
FILE = """\
/*! evo
[[launch]]
kernel = "f"
args = ["x", "n"]
*/
void f(const T* x, int n) {
    ACC sum = 0;
    for (int i = 0; i < n; i++) {
        sum += load(x[i]);
    }

    for (int i = 0; i < n; i++) {
        sum += 2 * load(x[i]);
    }
    use(sum);
}
"""


def block(search: str, replace: str) -> str:
    return f"<<<<<<< SEARCH\n{search}\n=======\n{replace}\n>>>>>>> REPLACE"


def refused(source: str, answer: str) -> str:
    with pytest.raises(AnswerError) as caught:
        child_source(source, answer)
    assert "\n" not in str(caught.value)
    return str(caught.value)


# --- edits that are found ----------------------------------------------------------------------------------------


def test_several_edits_with_prose_around_them() -> None:
    first = block("    ACC sum = 0;", "    ACC sum = 1;")
    second = block("    use(sum);\n}", "    use(sum + 1);\n}")
    answer = f"CHANGE: other sums\n\nSure! First:\n\n{first}\n\nand then\n\n```cpp\n{second}\n```\nThat is all."
    wanted = FILE.replace("sum = 0", "sum = 1").replace("use(sum)", "use(sum + 1)")
    assert child_source(FILE, answer) == wanted


@pytest.mark.parametrize(
    "search",
    [
        "for (int i = 0; i < n; i++) {\n    sum += load(x[i]);\n}",
        "\tfor (int i=0; i<n; i++) {\n\t\tsum += load(x[i]);\n\n\t}",
        "```cpp\n    for (int i = 0; i < n; i++) {\n        sum += load(x[i]);\n    }\n```",
        "\n    for (int i = 0; i < n; i++) {   \n        sum += load( x[i] );\n    }\n",
    ],
    ids=["indent", "tabs", "fence", "blank lines"],
)
def test_white_space_does_not_matter(search: str) -> None:
    child = child_source(FILE, block(search, search.replace("sum +=", "sum -=").replace("```cpp", "```")))
    assert "".join(child.split()) == "".join(FILE.replace("sum += load", "sum -= load", 1).split())


def test_a_replacement_takes_the_indentation_of_what_it_replaces() -> None:
    child = child_source(FILE, block("sum += load(x[i]);", "ACC v = load(x[i]);\nif (v > 0) {\n    sum += v;\n}"))
    assert "\n        ACC v = load(x[i]);\n        if (v > 0) {\n            sum += v;\n        }\n    }\n" in child


def test_an_edit_may_delete_and_line_ends_stay() -> None:
    windows = FILE.replace("\n", "\r\n")
    child = child_source(windows, "<<<<<<< SEARCH\n    use(sum);\n=======\n>>>>>>> REPLACE")
    assert child == windows.replace("    use(sum);\r\n", "")
    child = child_source(windows, block("    use(sum);", "    use(sum);\n    use(0);"))
    assert child == windows.replace("    use(sum);\r\n", "    use(sum);\r\n    use(0);\r\n")


def test_a_nearly_right_copy_of_a_place_like_no_other_is_found() -> None:
    search = (
        "        ACC sum = 0;\n"
        "        for (int c = 0; c < cols; ++c) sum += std::exp(load(in[c]) - largest);\n"
        "        for (int c = 0; c < cols; c++) out[c] = store(std::exp(load(in[c]) - largest) / sum);"
    )
    child = child_source(NAIVE, block(search, "        // gone"))
    assert child.count("std::exp") == 0 and "ACC largest = load(in[0]);" in child


def test_thoughts_are_no_part_of_the_answer() -> None:
    thought = f"<think>\n{block('nothing', 'like this')}\n</think>\n"
    assert "sum = 1" in child_source(FILE, thought + block("    ACC sum = 0;", "    ACC sum = 1;"))


def test_a_whole_file_in_a_fence() -> None:
    child = FILE.replace("sum = 0", "sum = 3")
    for opening, closing in (("```cpp", "```"), ("```", "```"), ("~~~~c++", "~~~~"), ("``` {.cpp}", "```")):
        assert child_source(FILE, f"Here it is:\n\n{opening}\n{child}{closing}\n\nEnjoy `it`!") == child
    part = "```cpp\nuse(sum);\n```"
    assert child_source(FILE, f"I change\n{part}\nas follows:\n```cpp\n{child}\n```") == child


# --- answers that are refused ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ("", "the answer is empty"),
        ("I am sorry, but I cannot help with that.", "neither an edit (`<<<<<<< SEARCH`) nor a whole file"),
        (FILE, "neither an edit (`<<<<<<< SEARCH`) nor a whole file"),
        (f"'''cpp\n{FILE}'''", "neither an edit"),
        (f"```cpp\n{FILE.replace('sum = 0', 'sum = 3')[:200]}", "a fence is opened and never closed"),
        ("```cpp\nvoid f(const T* x, int n) {}\n```", "a file begins with its header"),
        (f"```\n{FILE}//1\n```\nor\n```\n{FILE}//2\n```", "2 different fenced files"),
        (f"```\n{FILE}```", "is the one you were given"),
        (block("    ACC sum = 0;", "    ACC  sum = 0;"), "is the one you were given"),
        ("<<<<<<< SEARCH\n    ACC sum = 0;\n=======\n    ACC", "edit 1 is not closed"),
        ("<<<<<<< SEARCH\n    ACC sum = 0;\n>>>>>>> REPLACE", "edit 1: no line of `=======`"),
        ("<<<<<<< SEARCH\na\n=======\nb\n=======\nc\n>>>>>>> REPLACE", "edit 1: a second line of `=======`"),
        ("<<<<<<< SEARCH\na\n<<<<<<< SEARCH\nb\n=======\nc\n>>>>>>> REPLACE", "edit 1: a second `<<<<<<< SEARCH`"),
        ("oh\n>>>>>>> REPLACE\n" + block("a", "b"), "line 2 of the answer is `>>>>>>> REPLACE`"),
        (block("", "int x;"), "edit 1: nothing to search for"),
        (block("```\n\n```", "int x;"), "edit 1: nothing to search for"),
    ],
)  # fmt: skip
def test_malformed_answers_are_refused_with_a_reason(answer: str, reason: str) -> None:
    assert reason in refused(FILE, answer)


def test_an_edit_that_fits_two_places_is_refused_with_both() -> None:
    reason = refused(FILE, block("    for (int i = 0; i < n; i++) {", "    for (;;) {"))
    assert reason.startswith("edit 1: what it searches for stands in the file 2 times (lines 8, 12)")
    assert "2 times (lines 8, 12)" in refused(FILE, block("for(int i = 0; i < n; i++) {", "for (;;) {"))


def test_an_edit_that_fits_nowhere_is_refused_with_what_comes_nearest() -> None:
    reason = refused(FILE, block("    ACC total = 0;", "    ACC total = 1;"))
    assert reason.startswith("edit 1: what it searches for does not stand in the file (`ACC total = 0;` ...)")
    far = "    for (int k = 1; k <= m; ++k) {\n        sum += 2 * load(x[i]);\n    }\n    use(sum);"
    assert "line 12 comes nearest, 8" in refused(FILE, block(far, "    use(1);"))


def test_a_nearly_right_copy_of_one_of_two_alike_places_is_refused() -> None:
    body = "\n".join(f"    a{n} = load(x[i + {n}]) * load(w[j + {n}]) + a{n};" for n in (0, 1, 5))
    file = FILE.replace("    use(sum);", body)
    assert "is alike too" in refused(file, block("    a0 = load(x[i + 0]) * load(w[k + 0]) + a0;", "    // gone"))


def test_edits_of_the_same_lines_are_refused() -> None:
    answer = block(
        "    ACC sum = 0;\n    for (int i = 0; i < n; i++) {\n        sum += load(x[i]);", "    ACC sum = 1;"
    )
    assert refused(FILE, f"{answer}\n{block('    ACC sum = 0;', '    ACC sum = 2;')}") == (
        "edits 1 and 2 want to change the same lines"
    )


def test_one_bad_edit_spoils_all() -> None:
    answer = block("    ACC sum = 0;", "    ACC sum = 1;") + "\n" + block("    nothing();", "    something();")
    assert refused(FILE, answer).startswith("edit 2:")


def test_hostile_answers_come_to_an_end() -> None:
    source = FILE + "\n".join(f"    y[{n}] = load(x[i]) * {n} + load(w[j]);" for n in range(4000))
    search = "\n".join(f"    y[{n}] = load(x[i]) * {n + 1} - load(w[k]);" for n in range(2000))
    refused(source, block(search, "x"))
    refused(source, "<<<<<<< SEARCH\n" * 50_000)
    refused(source, "```\n```" * 50_000)
    description("change " * 50_000, "")


# --- properties --------------------------------------------------------------------------------------------------

LINES = st.lists(st.text("ab ;{}()\t", max_size=12), min_size=1, max_size=30)


@given(LINES, st.integers(0, 29), st.integers(1, 5), LINES)
def test_an_exact_edit_changes_its_lines_and_no_other(lines: list[str], begin: int, count: int, put: list[str]) -> None:
    begin %= len(lines)
    found = lines[begin : begin + count]
    assume(any(line.strip() for line in found))
    unique = sum(lines[at : at + len(found)] == found for at in range(len(lines))) == 1
    try:
        child = edited("\n".join(lines), (Block(tuple(found), tuple(put)),))
    except AnswerError:
        assert not unique
    else:
        assert unique
        assert child.split("\n") == lines[:begin] + put + lines[begin + len(found) :]


@given(st.data())
def test_careless_white_space_leads_to_the_same_place_or_to_a_refusal(data: st.DataObject) -> None:
    lines = NAIVE.split("\n")
    begin = data.draw(st.integers(0, len(lines) - 1))
    found = lines[begin : begin + data.draw(st.integers(1, 6))]
    assume(any(line.strip() for line in found))
    careless = [f"{data.draw(st.sampled_from(['', '  ', chr(9)]))}{line.strip()} " for line in found]
    try:
        child = edited(NAIVE, (Block(tuple(careless), ("@",)),))
    except AnswerError as error:
        assert "times (lines" in str(error)
        bare = ["".join(line.split()) for line in lines if line.strip()]
        wanted = ["".join(line.split()) for line in found if line.strip()]
        assert sum(bare[at : at + len(wanted)] == wanted for at in range(len(bare))) > 1
    else:
        assert child.split() == "\n".join([*lines[:begin], "@", *lines[begin + len(found) :]]).split()


@given(st.text("<>=SEARCHREPLAC `~\n*/!evo", max_size=300))
def test_any_text_is_an_answer_or_a_reason(answer: str) -> None:
    try:
        assert child_source(FILE, answer) != FILE
    except AnswerError as error:
        assert str(error) and "\n" not in str(error)


@given(LINES, LINES)
def test_blocks_are_read_as_they_are_written(search: list[str], replace: list[str]) -> None:
    assume(any(line.strip() for line in search))
    text = "\n".join(["words", "<<<<<<< SEARCH", *search, "=======", *replace, ">>>>>>> REPLACE", "words"])
    assert parse_blocks(text.split("\n")) == (Block(tuple(search), tuple(replace)),)


def test_descriptions() -> None:
    assert description("CHANGE: unroll by 4\ncode", "none") == "unroll by 4"
    assert description("Well.\n**Change:** `vector` loads  of x ", "none") == "`vector` loads of x"
    assert description("nothing said", "none") == "none"
    assert description("CHANGE:\n```cpp\nint x;", "none") == "none"
    assert len(description("CHANGE: " + "word " * 100, "none")) <= MAX_DESCRIPTION
