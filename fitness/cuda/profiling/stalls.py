"""Stalls of a kernel's warps: samples of program counters, and the lines of the kernel file that they fall on."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from fitness.cuda.compile.line_table import Lines
from fitness.cuda.compile.nvrtc import FILE
from fitness.profiling.counters import ISSUED, SAMPLED, WAITS, WAITS_SHORT

SHOWN_LINES = 3
LEAST_SAMPLES = 50
"""Fewest samples of waiting warps from which shares say something."""
LEAST_SHARE = 0.03
"""Smallest share of a line that is worth quoting."""
QUOTED_CHARACTERS = 120
_COLUMNS = (SAMPLED, "stall_")
"""Prefixes of the columns of samples, by the version of the tool and what it was asked for."""
_ISSUED_ALONE = ("(not issued)", "_not_issued")
"""Suffixes of the columns that hold a part of the samples again."""


@dataclass(frozen=True)
class Sampled:
    """Samples taken during one launch."""

    stalls: Mapping[int, Mapping[str, float]]
    """Samples of warps that waited, by the instruction's offset from the kernel's first one in bytes, and by reason."""

    @property
    def total(self) -> float:
        return sum(sum(reasons.values()) for reasons in self.stalls.values())


@dataclass(frozen=True)
class StalledLine:
    """A line of the kernel file at which warps wait."""

    number: int
    share: float
    """Share of all samples of waiting warps, launches weighted by their time."""
    reason: str
    """The most frequent one, by its name."""
    reason_share: float
    """Share of the line's samples."""


# --- what the tool prints -------------------------------------------------------------------------------------------


@dataclass
class _Launch:
    first: int | None = None
    stalls: dict[int, dict[str, float]] = field(default_factory=dict)


def parse_source(text: str) -> list[Sampled]:
    """Read what `ncu --csv --page source --print-source sass` prints: for each launch a table of its instructions.

    A line with the kernel's name stands in front of each table. What is no such table is passed over.
    """
    launches: list[_Launch] = []
    address, reasons = 0, dict[int, str]()
    width = 0
    for row in csv.reader(line for line in text.splitlines() if line.startswith('"')):
        if row[0] == "Kernel Name":
            launches.append(_Launch())
            width = 0
        elif "Address" in row and "Source" in row:
            address, width, reasons = row.index("Address"), len(row), _reasons(row)
            if not launches:
                launches.append(_Launch())
        elif launches and width and len(row) == width:
            _take(launches[-1], row[address], {name: row[column] for column, name in reasons.items()})
    return [Sampled(launch.stalls) for launch in launches]


def _reasons(header: Sequence[str]) -> dict[int, str]:
    """The columns that hold samples of waiting warps, and why these wait."""
    found = {}
    for column, title in enumerate(header):
        prefix = next((prefix for prefix in _COLUMNS if title.startswith(prefix)), None)
        if prefix and not title.lower().endswith(_ISSUED_ALONE):
            name = title.removeprefix(prefix)
            found[column] = WAITS_SHORT.get(name, name)
    return {column: name for column, name in found.items() if name != ISSUED}


def _take(launch: _Launch, address: str, cells: Mapping[str, str]) -> None:
    """Note the samples of one instruction."""
    try:
        at = int(address, 16)
    except ValueError:
        return
    if launch.first is None:
        launch.first = at
    counts = {name: count for name, cell in cells.items() if (count := _count(cell))}
    if counts:
        launch.stalls[at - launch.first] = counts


def _count(cell: str) -> float:
    return float(digits) if (digits := cell.replace(",", "")).isdigit() else 0.0


# --- lines ----------------------------------------------------------------------------------------------------------


def stalled_lines(sampled: Iterable[tuple[Sampled, Lines, float]]) -> list[StalledLine]:
    """Return the lines of the kernel file at which most samples of waiting warps fall, the worst first.

    Each launch comes with its kernel's lines and its share of the time.
    """
    shares: dict[int, dict[str, float]] = {}
    whole = 0.0
    for samples, lines, time_share in sampled:
        total = samples.total
        if total < LEAST_SAMPLES:
            continue
        whole += time_share
        for offset, reasons in samples.stalls.items():
            number = lines.line(offset, FILE)
            if number is not None:
                of_line = shares.setdefault(number, {})
                for reason, count in reasons.items():
                    of_line[reason] = of_line.get(reason, 0.0) + time_share * count / total
    found = []
    for number, by_reason in shares.items():
        share, reason = sum(by_reason.values()), max(by_reason, key=lambda name: (by_reason[name], name))
        found.append(StalledLine(number, share / whole, reason, by_reason[reason] / share))
    found.sort(key=lambda line: (-line.share, line.number))
    return [line for line in found[:SHOWN_LINES] if line.share >= LEAST_SHARE]


def quoted(stalled: Iterable[StalledLine], source: str) -> list[str]:
    """Return a sentence on each line with its text, as a prompt shows it."""
    texts = source.removeprefix("\ufeff").split("\n")
    return [
        f"warps wait at line {line.number} ({100 * line.share:.0f} % of all samples of waiting warps, "
        f"{100 * line.reason_share:.0f} % of these for {_words(line.reason)}): {_cut(texts[line.number - 1])}"
        for line in stalled
        if 0 < line.number <= len(texts)
    ]


def _words(reason: str) -> str:
    return WAITS.get(reason, reason.replace("_", " "))


def _cut(text: str) -> str:
    stripped = text.strip()
    return stripped if len(stripped) <= QUOTED_CHARACTERS else stripped[:QUOTED_CHARACTERS].rstrip() + " ..."
