"""From a language model's answer to a child's source: search/replace edits, or a whole file in a fence.

Tolerant of how models write, strict about what is meant: an edit that could go to two places, or to none for sure,
is refused with a reason that the model can act on.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import pairwise

ALIKE = 0.9
"""Least likeness (0 to 1, by tokens) of a place that counts as what an edit searches for."""
RUNNER_UP = 0.75
"""Another place as alike as this makes it ambiguous."""
LEAST_TOKENS = 20
"""Shorter texts are too easily alike: they must match exactly, white space aside."""
MOST_COMPARED = 3_000_000
"""Tokens of all places together; beyond, likeness is not looked for."""
MOST_STEPS = 1_000_000
"""Pairs of equal tokens in all places that come into question; beyond, likewise."""
MAX_DESCRIPTION = 160

_HEADER = re.compile(r"\ufeff?\s*/\*!?\s*evo\b")
_FENCE = re.compile(r"\s*+(`{3,}+|~{3,}+)\s*+([\w+#.-]*+)[^`~]*+")
_SEARCH = re.compile(r"\s*<{5,9}\s*(?:SEARCH|ORIGINAL|HEAD)\b.*", re.IGNORECASE)
_DIVIDER = re.compile(r"\s*={5,9}\s*")
_REPLACE = re.compile(r"\s*>{5,9}(?:\s.*)?")
_TOKEN = re.compile(r"\w+|[^\w\s]")
_THOUGHT = re.compile(r"\A\s*<think(?:ing)?>.*?</think(?:ing)?>", re.DOTALL)
_CHANGE = re.compile(r"^[ \t*#>_`-]*+change[ \t*_`]*+:[ \t*_]*(\S.*)$", re.IGNORECASE | re.MULTILINE)


class AnswerError(Exception):
    """The answer holds no child; the text says what is wrong with it, for the model to read."""


@dataclass(frozen=True)
class Block:
    """One edit as the model wrote it: whole lines to search for, whole lines to put there."""

    search: tuple[str, ...]
    replace: tuple[str, ...]


def child_source(source: str, answer: str) -> str:
    """The parent's `source` after what `answer` wants done with it. Raises AnswerError.

    Edits are looked for in the source as it stands, not in what earlier edits made of it, and are made all or none.
    """
    lines = _THOUGHT.sub("", answer).replace("\r\n", "\n").split("\n")
    if not answer.strip():
        raise AnswerError("the answer is empty")
    blocks = parse_blocks(lines)
    changed = edited(source, blocks) if blocks else _whole_file(lines)
    if changed.split() == source.split():
        raise AnswerError("the file that results is the one you were given: change something in it")
    return changed


def description(answer: str, default: str) -> str:
    """The model's words on its change (its line `CHANGE: ...`), cut to a readable length."""
    match = _CHANGE.search(_THOUGHT.sub("", answer))
    text = " ".join(match[1].split()).strip("*_ ") if match else ""
    return (text if len(text) <= MAX_DESCRIPTION else text[: MAX_DESCRIPTION - 3] + "...") or default


# --- reading -----------------------------------------------------------------------------------------------------


def parse_blocks(lines: Sequence[str]) -> tuple[Block, ...]:
    """The edits of an answer, in order; none if it has no line `<<<<<<< SEARCH`. Raises AnswerError."""
    blocks: list[Block] = []
    search: list[str] = []
    replace: list[str] = []
    part: list[str] | None = None
    for number, line in enumerate(lines, 1):
        where = f"edit {len(blocks) + 1}"
        if _SEARCH.fullmatch(line):
            if part is not None:
                raise AnswerError(f"{where}: a second `<<<<<<< SEARCH` before its `>>>>>>> REPLACE`")
            search, replace = [], []
            part = search
        elif part is search and part is not None and _DIVIDER.fullmatch(line):
            part = replace
        elif part is replace and part is not None and _DIVIDER.fullmatch(line):
            raise AnswerError(f"{where}: a second line of `=======`; an edit has one")
        elif _REPLACE.fullmatch(line):
            if part is None:
                raise AnswerError(f"line {number} of the answer is `>>>>>>> REPLACE`, but no edit is open there")
            if part is search:
                raise AnswerError(f"{where}: no line of `=======` between what is searched for and what replaces it")
            blocks.append(_block(search, replace, where))
            part = None
        elif part is not None:
            part.append(line)
    if part is not None:
        raise AnswerError(f"edit {len(blocks) + 1} is not closed by `>>>>>>> REPLACE`; is the answer cut short?")
    return tuple(blocks)


def _block(search: list[str], replace: list[str], where: str) -> Block:
    wanted, put = _without_fence(search), _without_fence(replace)
    if not any(line.strip() for line in wanted):
        raise AnswerError(f"{where}: nothing to search for; copy the lines that are to be replaced")
    return Block(tuple(wanted), tuple(put))


def _without_fence(lines: list[str]) -> list[str]:
    """The lines of an edit's half without the fence that some models put around it."""
    inner = _trimmed(lines)
    if len(inner) >= 2 and (opening := _FENCE.fullmatch(inner[0])) and _closes(inner[-1], opening[1]):
        return inner[1:-1]
    return lines


def _trimmed(lines: Sequence[str]) -> list[str]:
    """The lines without blank ones at either end."""
    kept = [at for at, line in enumerate(lines) if line.strip()]
    return list(lines[kept[0] : kept[-1] + 1]) if kept else []


def _closes(line: str, fence: str) -> bool:
    bare = line.strip()
    return len(bare) >= len(fence) and set(bare) == {fence[0]}


def _whole_file(lines: Sequence[str]) -> str:
    """The one fenced kernel file of an answer."""
    fenced, position = [], 0
    while position < len(lines):
        opening = _FENCE.fullmatch(lines[position])
        position += 1
        if not opening:
            continue
        end = next((at for at in range(position, len(lines)) if _closes(lines[at], opening[1])), None)
        if end is None:
            raise AnswerError("a fence is opened and never closed; is the answer cut short?")
        fenced.append("\n".join(lines[position:end]).strip("\n") + "\n")
        position = end + 1
    files = list(dict.fromkeys(text for text in fenced if _HEADER.match(text)))
    if len(files) == 1:
        return files[0]
    if files:
        raise AnswerError(f"the answer holds {len(files)} different fenced files; give the one that is meant")
    if fenced:
        raise AnswerError("what is fenced is no whole file: a file begins with its header `/*! evo ... */`")
    raise AnswerError("the answer holds neither an edit (`<<<<<<< SEARCH`) nor a whole file in a fence (```)")


# --- applying ----------------------------------------------------------------------------------------------------


def edited(source: str, blocks: Sequence[Block]) -> str:
    """`source` with every block's lines replaced, each found on its own. Raises AnswerError."""
    lines = source.split("\n")
    places = []
    for number, block in enumerate(blocks, 1):
        begin, end = _locate(lines, block, f"edit {number}")
        places.append((begin, end, number, _fitted(block, lines[begin:end])))
    places.sort()
    for (_, end, number, _), (begin, _, other, _) in pairwise(places):
        if begin < end:
            raise AnswerError(f"edits {min(number, other)} and {max(number, other)} want to change the same lines")
    for begin, end, _, put in reversed(places):
        lines[begin:end] = put
    return "\n".join(lines)


def _locate(lines: Sequence[str], block: Block, where: str) -> tuple[int, int]:
    """First line and end of the one place that a block means."""
    wanted = [line.rstrip("\r") for line in block.search]
    plain = [line.rstrip("\r") for line in lines]
    # The strictest reading that finds something decides: as written, white space aside, nearly alike.
    exact = _occurrences(plain, wanted)
    if exact:
        return _only([(at, at + len(wanted)) for at in exact], where)
    # White space aside; blank lines do not count.
    filled = [at for at, line in enumerate(plain) if line.strip()]
    bare = ["".join(plain[at].split()) for at in filled]
    searched = ["".join(line.split()) for line in wanted if line.strip()]
    size = len(searched)
    loose = _occurrences(bare, searched)
    if loose:
        return _only([(filled[at], filled[at + size - 1] + 1) for at in loose], where)
    at = _likeliest([plain[at] for at in filled], [line for line in wanted if line.strip()], filled, where)
    return filled[at], filled[at + size - 1] + 1


def _occurrences(lines: Sequence[str], wanted: Sequence[str]) -> list[int]:
    """Where these lines begin, in time that does not depend on how alike they are (Knuth, Morris and Pratt, 1977)."""
    back = [0] * len(wanted)
    """By how many matched lines: how many of them still match where the last one ends."""
    matched = 0
    for at in range(1, len(wanted)):
        while matched and wanted[at] != wanted[matched]:
            matched = back[matched - 1]
        matched += wanted[at] == wanted[matched]
        back[at] = matched
    found, matched = [], 0
    for at, line in enumerate(lines):
        while matched and (matched == len(wanted) or line != wanted[matched]):
            matched = back[matched - 1]
        matched += line == wanted[matched]
        if matched == len(wanted):
            found.append(at + 1 - matched)
    return found


def _only(places: list[tuple[int, int]], where: str) -> tuple[int, int]:
    if len(places) > 1:
        listed = ", ".join(str(begin + 1) for begin, _ in places[:6]) + (", ..." if len(places) > 6 else "")
        raise AnswerError(
            f"{where}: what it searches for stands in the file {len(places)} times (lines {listed}); "
            "search for more lines around it"
        )
    return places[0]


def _likeliest(lines: list[str], searched: list[str], numbers: list[int], where: str) -> int:
    """The one run of `lines` that is nearly what is searched for."""
    missing = f"{where}: what it searches for does not stand in the file (`{searched[0].strip()[:60]}` ...)"
    scores = _likeness([_TOKEN.findall(line) for line in lines], [_TOKEN.findall(line) for line in searched])
    if not scores:
        raise AnswerError(f"{missing}; copy whole lines exactly as they are")
    best = max(scores, key=lambda at: scores[at])
    near = f"line {numbers[best] + 1} comes nearest, {scores[best]:.0%} alike"
    if scores[best] < ALIKE:
        raise AnswerError(f"{missing}; {near}; copy whole lines exactly as they are")
    # A run that overlaps the best one is alike because it shares lines with it, and is no rival.
    rivals = [at for at in scores if abs(at - best) >= len(searched)]
    if rivals:
        raise AnswerError(f"{missing}; {near}, but line {numbers[rivals[0]] + 1} is alike too; copy lines exactly")
    return best


def _likeness(lines: list[list[str]], searched: list[list[str]]) -> dict[int, float]:
    """The likeness of each run of lines that reaches `RUNNER_UP`."""
    wanted = [token for line in searched for token in line]
    runs = range(len(lines) - len(searched) + 1)
    if len(wanted) < LEAST_TOKENS or len(wanted) * len(runs) > MOST_COMPARED:
        return {}
    matcher = SequenceMatcher(None, autojunk=False)
    matcher.set_seq2(wanted)
    scores, steps, counted = {}, 0, Counter(wanted)
    for at in runs:
        run = [token for line in lines[at : at + len(searched)] for token in line]
        matcher.set_seq1(run)
        if matcher.real_quick_ratio() < RUNNER_UP or matcher.quick_ratio() < RUNNER_UP:
            continue
        # What the matcher looks at for each block that it finds: much where few tokens are repeated again and again.
        steps += sum(counted[token] for token in run)
        if steps > MOST_STEPS:
            return {}
        if (ratio := matcher.ratio()) >= RUNNER_UP:
            scores[at] = ratio
    return scores


def _fitted(block: Block, found: Sequence[str]) -> list[str]:
    """The replacement with the file's line ends, indented as the lines it replaces."""
    ending = "\r" if found[0].endswith("\r") else ""
    there, here = (_indent(lines) for lines in (block.search, found))
    fitted = []
    for line in block.replace:
        moved = here + line[len(there) :] if there != here and line.strip() and line.startswith(there) else line
        fitted.append(moved.rstrip("\r") + ending)
    return fitted


def _indent(lines: Sequence[str]) -> str:
    first = next(line for line in lines if line.strip())
    return first[: len(first) - len(first.lstrip())]
