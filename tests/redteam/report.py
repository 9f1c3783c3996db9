"""`python -m tests.redteam.report [--json] [--only PATTERN]`: runs every canary and every right kernel, prints what
came out, and writes it down in README.md beside this file. `--cuda` writes only the part on the cuda target, which
takes no run."""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from operators.kernel import Kernel
from tests.gpu.every import CANARIES, KINDS
from tests.gpu.kernels import AUDITED
from tests.redteam.arena import HERE, Arena, Entrant, Outcome, Secret, canaries, right_kernels
from tests.redteam.processes import adopt_orphans, descendants, left_over

CUDA = list(CANARIES.values())
"""The canaries of the cuda target."""
README = HERE / "README.md"
BEGIN, END = "<!-- cuda:begin -->", "<!-- cuda:end -->"
"""The part on the cuda target lies between these lines."""


@dataclass(frozen=True)
class Row:
    """One entrant's result."""

    kind: str
    name: str
    tries: str
    expected: str
    result: str
    level: str
    status: str
    message: str
    seconds: float
    why: str = ""
    processes_left: int | None = None
    """Processes left; for bombs only, like the next one."""
    next_verdict_s: float | None = None
    """Time until a kernel that is judged directly afterwards has its verdict."""

    @property
    def surprising(self) -> bool:
        return self.result != self.expected


def rows(entrants: Sequence[Entrant], arena: Arena) -> Iterator[Row]:
    for number, entrant in enumerate(entrants):
        bomb = entrant.kind == "bombs"
        if bomb:
            arena.judge(_honest(arena, -1), confirm=False)  # opens the processes that a stage keeps
        before = descendants()
        fight = arena.fight(entrant)
        left = len(left_over(before)) if bomb else None
        found = fight.evaluation
        right = entrant.kind == "right"
        yield Row(
            kind=entrant.kind,
            name=entrant.path.stem,
            tries=entrant.about["what" if right else "tries"],
            expected="correct" if right else str(entrant.expected),
            result=str(found.verdict) if right else str(entrant.outcome(found, arena.secret)),
            level=str(found.level),
            status=str(found.verdict),
            message=found.message.replace(str(arena.secret.path), arena.secret.path.name),
            seconds=round(fight.seconds, 2),
            why=entrant.about.get("why", "") or entrant.about.get("finding", ""),
            processes_left=left,
            next_verdict_s=round(arena.judge(_honest(arena, number), confirm=False).seconds, 2) if bomb else None,
        )


def _honest(arena: Arena, number: int) -> Kernel:
    """The baseline with a comment, so that it is built and judged anew."""
    baseline = arena.stage("axpb").baseline
    return Kernel(baseline.operator, baseline.target, f"{baseline.source}// {number}\n")


# --- Markdown -------------------------------------------------------------------------------------------------------


INTRODUCTION = """# Red team: attacks on the verdict

For those who doubt that a verdict can be trusted, or want to break it. A *canary* is a kernel file with one trick. The
result of each is one of

* *structural*: it cannot be expressed, or what it needs does not exist;
* *caught*: it runs, and a check refuses it;
* *open*: it passes, and the reason is given.

`python -m tests.redteam.report` runs the canaries of the cpu target and writes this page; `--cuda` writes the part on
the cuda target, whose canaries are in tests/gpu, and runs nothing. Canaries of the emulation and of profiles are in
`test_rooms.py`. [How a verdict is reached](../../fitness/README.md) names the checks."""


def summary(results: Sequence[Row]) -> str:
    """The counts by class, and what is open."""
    attacks = [row for row in results if row.kind != "right"]
    right = [row for row in results if row.kind == "right"]
    outcomes = [str(outcome) for outcome in Outcome]
    counts = Counter((row.kind, row.result) for row in attacks)
    total = Counter(row.result for row in attacks)
    lines = [
        f"{len(attacks)} canaries, each a kernel file with one trick, attack the cpu target: {total['structural']} are "
        f"*structural* (cannot be expressed, or what they need does not exist), {total['caught']} are *caught*, "
        f"{total['open']} are *open*. {len(right)} unusual but right kernels must pass; "
        f"{sum(row.result == 'correct' for row in right)} do. `arena.py` says how a canary is written.",
        "",
        f"| class | {' | '.join(outcomes)} |",
        f"|---|{'---|' * len(outcomes)}",
    ]
    for kind in dict.fromkeys(row.kind for row in attacks):
        lines.append(f"| {kind.replace('_', ' ')} | {' | '.join(str(counts[kind, o] or '') for o in outcomes)} |")
    lines += ["", "| open | what it does | why |", "|---|---|---|"]
    lines += [_line(f"{row.kind}/{row.name}", row.tries, row.why) for row in attacks if row.result == "open"]
    return "\n".join(lines)


def summary_of_cuda() -> str:
    """For README.md: the canaries of tests/gpu by class and by what its tests expect of them; none is open."""
    outcomes = {
        "structural": [c for c in CUDA if c.structural],
        "caught": [c for c in CUDA if not c.structural and c.says],
        "in vain": [c for c in CUDA if not c.says],
    }
    tools = Counter(tool for _, tool, _ in AUDITED.values())
    lines = [
        f"On the cuda target {len(CUDA)} canaries, in [tests/gpu](../gpu), whose tests want the following of them; "
        "the structural ones need no GPU. Those that are *in vain* are right, as what they count on never comes.",
        f"{len(AUDITED)} more that pass every check by luck fall to compute-sanitizer, where it is installed: to "
        f"{', '.join(f'{tool} {count}' for tool, count in sorted(tools.items()))}.",
        "",
        f"| class | {' | '.join(outcomes)} |",
        f"|---|{'---|' * len(outcomes)}",
    ]
    for kind, group in KINDS.items():
        counts = [sum(c in found for c in group.values()) for found in outcomes.values()]
        lines.append(f"| {kind} | {' | '.join(str(count or '') for count in counts)} |")
    return "\n".join(lines)


def table(results: Sequence[Row]) -> str:
    """Every entrant."""
    attacks = [row for row in results if row.kind != "right"]
    lines = [
        "| class | canary | what it tries | result | status | first words |",
        "|---|---|---|---|---|---|",
    ]
    for row in attacks:
        lines.append(_line(row.kind, row.name, row.tries, row.result, row.status, _first_words(row.message)))
    lines += ["", "After a bomb:", "", "| bomb | status | seconds | processes left | next verdict after, s |"]
    lines.append("|---|---|---|---|---|")
    for row in attacks:
        if row.next_verdict_s is not None:
            lines.append(_line(row.name, row.status, row.seconds, row.processes_left, row.next_verdict_s))
    lines += ["", "Unusual but right:", "", "| kernel | what | status | first words |", "|---|---|---|---|"]
    for row in results:
        if row.kind == "right":
            lines.append(_line(row.name, row.tries, row.status, _first_words(row.message)))
    return "\n".join(lines)


def page(results: Sequence[Row]) -> str:
    """The whole of README.md."""
    cuda = f"## The cuda target\n\n{BEGIN}\n{summary_of_cuda()}\n{END}"
    every = "## Every canary of the cpu target"
    return "\n\n".join((INTRODUCTION, "## The cpu target", summary(results), cuda, every, table(results))) + "\n"


def _first_words(message: str, count: int = 12) -> str:
    return " ".join(message.split()[:count])[:100]


def _line(*cells: object) -> str:
    return f"| {' | '.join(map(_cell, cells))} |"


def _cell(value: object) -> str:
    return str(value).replace("|", "\\|").replace("<", "&lt;").replace("`", "'")


def write(results: Sequence[Row]) -> None:
    README.write_text(page(results), encoding="utf-8")


def write_cuda() -> None:
    """Write the part on the cuda target anew, and leave the rest of README.md as it stands."""
    head, begin, rest = README.read_text(encoding="utf-8").partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not begin or not end:
        sys.exit(f"{README}: no lines `{BEGIN}` and `{END}` to write between")
    README.write_text(f"{head}{BEGIN}\n{summary_of_cuda()}\n{END}{tail}", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print rows as JSON and write no file")
    parser.add_argument("--only", default="", help="run what has this in its name; writes no file")
    parser.add_argument("--cuda", action="store_true", help="run nothing; write the part on the cuda target")
    options = parser.parse_args()
    if options.cuda:
        write_cuda()
        return
    adopt_orphans()
    chosen = [e for e in (*canaries(), *right_kernels()) if options.only in e.name and e.runs_here]
    results: list[Row] = []
    with tempfile.TemporaryDirectory() as folder:
        planted = Secret.planted(Path(folder), os.urandom(8).hex())
        with Arena(Path(folder), planted) as arena:
            for row in rows(chosen, arena):
                results.append(row)
                if not options.json:
                    mark = "!" if row.surprising else " "
                    words = _first_words(row.message)
                    print(
                        f"{mark} {row.kind}/{row.name:32} {row.result:10} {row.status:13} {row.seconds:6.2f} s  {words}"
                    )
    if options.json:
        print(json.dumps([asdict(row) for row in results], indent=1))
    elif not options.only:
        write(results)
    sys.exit(any(row.surprising for row in results))


if __name__ == "__main__":
    main()
