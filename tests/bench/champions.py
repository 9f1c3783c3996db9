"""The verdicts that this version gives on the best kernels known, `champions/` of every operator, on this GPU.

    python -m tests.bench.champions --slice 1/4 --limit-s 500 --results FILE.jsonl    # again to go on where it ended
    python -m tests.bench.champions --results FILE.jsonl --table                      # what is there; needs no GPU
    python -m tests.bench.champions --results FILE.jsonl --lines                      # the same in ten lines
    python -m tests.bench.champions --results FILE.jsonl --record                     # into the champions' records
    python -m tests.bench.champions --recorded --lines        # those that a run confirmed, as their records have it
    python -m tests.bench.champions --unlisted 8 --results OTHER.jsonl     # at sizes that no file lists, drawn anew
    python -m tests.bench.champions --operators softmax --dtypes bf16 --instead A.cu B.cu --results FILE.jsonl
    python -m tests.bench.champions --dtypes bf16 --instead FOLDER --results FILE.jsonl

Prints a JSON line for each kernel and dtype: its verdict, how far it got, speedups over the naive kernel and over the
strongest rival, both with their 95 % interval, as a mean and by workload, the share of the roofline, and the seconds
that it took; then a table of the same, beside what was measured when the kernel was taken in. The strongest rival is
each workload's fastest call, compiled ones among them: to compile them takes up to minutes, once on a machine. One
process has a GPU alone: two of them may leave a rival no memory. A kernel goes through every level up to `--level`, as
one that a search submits, with its tunables' first values. All of them are right: exits with 1 where one is refused,
which is a false alarm of the verifier, or lost.

With `--instead` other files are judged beside a champion: all of them and itself up to the level `full`, which compiles
no rivals, and the fastest of them further. How each fares by size is told beside the champion of the same run. Those in
a folder are for the operators that they are called after, as `softmax.cu` and `softmax-2.cu`. Where a file is slower
nowhere, it may take the place of the champion's: `--record` then writes its record.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import date
from functools import cached_property
from pathlib import Path
from statistics import geometric_mean
from typing import Any

import numpy as np

from evo.packaging.champion import MOST_SLOWER, place_of
from fitness.cuda.gpu import shared_gpu
from fitness.cuda.running.driver import device_facts, driver_version
from fitness.cuda.target import CudaFitness
from fitness.evaluation import Z95, Evaluation, Level, Timing, interval95, library_calls
from fitness.install import kept_versions
from fitness.judging.base import Anchor, Fitness
from fitness.judging.levels import full_anchor
from fitness.judging.shapes import UnlistedShapes
from fitness.judging.timing import LogRatio, mean
from fitness.profiling.roofline import Peaks, roofline
from fitness.targets import peaks
from fitness.words import flags
from operators.catalog import folders, load
from operators.champions import Champion, champions, is_of, text_digest, write_records
from operators.definition.spec import Operator, Task, Workload
from operators.errors import UserError
from operators.expression import ExpressionError
from operators.kernel import Kernel
from operators.libraries import called, kind_of
from operators.plan.reading import parse_plan
from tests.bench.champion_lines import lines

LEVELS = tuple(Level)
UNLISTED = "unlisted"
"""The set of sizes that were drawn."""
DRAWS = 4
"""Draws for each size that is wanted: a kernel may not take all, and some are drawn twice."""
Row = dict[str, Any]
Key = tuple[str, str, str, str]
"""Operator, dtype, file and the kernel's id."""


@dataclass(frozen=True)
class Entry:
    """One kernel file with one dtype."""

    operator: str
    record: Champion
    instead: Path | None = None
    """A file that is judged in the champion's place."""

    @cached_property
    def kernel(self) -> Kernel:
        """The champion as a kernel, as it is now, or the one in its place."""
        path = self.instead or load(self.operator).ancestor(f"champions/{self.record.stem}", "cuda")
        return Kernel(self.operator, "cuda", path.read_text(encoding="utf-8"))

    @property
    def key(self) -> Key:
        """The key of a row of the results."""
        return self.operator, self.record.dtype, self.record.file, self.kernel.id


def main() -> None:
    options = _options()
    rows = current(read := read_rows(options.results))
    chosen = share(entries(options.operators, options.dtypes), options.slice)
    offered = offers(chosen, options.instead)
    known: set[tuple[str, ...]] = {_key(row) for row in read}
    known |= {(*_key(row)[:3], *row["offer"]) for row in read if "offer" in row}
    if options.recorded:
        rows += [row for row in map(recorded, chosen) if row and _key(row) not in known]
        known |= {_key(row) for row in rows}
    if options.table or options.lines:
        print(table(rows) if options.table else lines(one_each(rows)))
        return
    if options.record:
        print(f"{record(rows)} records changed")
        return
    deadline = time.monotonic() + options.limit_s
    left = [offer for offer in offered if (*offer[0].key[:3], *_kernels(offer)) not in known]
    lower = min(Level.FULL, options.level, key=LEVELS.index)
    if left:
        with kept_gpu() as folder:
            while left and time.monotonic() < deadline:
                offer = left.pop(0)
                entry = fastest(offer, lambda entry: _judged(entry, options, folder, lower))
                rows.append(_judged(entry, options, folder, options.level) | {"offer": _kernels(offer)})
                _tell(rows[-1], entry, options.results)
    print(table(rows))
    print(f"{len(left)} of {len(offered)} left", file=sys.stderr)
    sys.exit(any(row["status"] != "correct" for row in rows))


def _kernels(offer: Sequence[Entry]) -> list[str]:
    return [entry.kernel.id for entry in offer]


def _tell(row: Row, entry: Entry, results: Path | None) -> None:
    """Print a row, and how it fared beside the record of the champion whose place it is in, and keep the row."""
    line = json.dumps(row)
    print(line, flush=True)
    if entry.instead:
        print(*beside(row, entry.record.over_naive_by_size, "the record"), sep="\n", flush=True)
    if results:
        with results.open("a", encoding="utf-8") as file:
            file.write(f"{line}\n")


@contextmanager
def kept_gpu() -> Iterator[Path]:
    """A folder for what is compiled; the GPU's processes stay from one task to the next, as those of a search do."""
    with tempfile.TemporaryDirectory() as folder:
        gpu = shared_gpu(Path(folder))
        gpu.join(None)
        try:
            yield Path(folder)
        finally:
            gpu.leave(None)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--operators", nargs="+", default=sorted(folders()))
    parser.add_argument("--dtypes", nargs="+", default=["fp32", "bf16"])
    parser.add_argument("--slice", type=part, default=(1, 1), metavar="I/N", help="the I-th of N shares of them")
    parser.add_argument("--limit-s", type=float, default=math.inf, help="seconds after which no kernel begins")
    parser.add_argument("--level", type=Level, choices=LEVELS, default=Level.CONFIRMED)
    parser.add_argument("--workloads", help="the set that is timed; default: the one that the kernel's record names")
    parser.add_argument(
        "--instead", type=Path, nargs="+", default=(), metavar="FILE",
        help="judge these files beside the one champion that is named, or those of a folder beside their operators'",
    )  # fmt: skip
    parser.add_argument("--unlisted", type=int, metavar="N", help="time N drawn sizes per kernel instead, see `drawn`")
    parser.add_argument("--seed", type=int, default=0, help="of those sizes")
    parser.add_argument("--results", type=Path, help="JSON lines; what stands there is not done again")
    parser.add_argument("--recorded", action="store_true", help="what a run confirmed counts as its record has it")
    parser.add_argument("--table", action="store_true", help="only show what the results say")
    parser.add_argument("--lines", action="store_true", help="show that in ten lines, for all, by dtype and by kind")
    parser.add_argument("--record", action="store_true", help="write it into champions.toml")
    return parser.parse_args()


def part(text: str) -> tuple[int, int]:
    """`2/4` as numbers. Raises ValueError for a share that is none."""
    number, _, of = text.partition("/")
    if not 1 <= int(number) <= int(of):
        raise ValueError(text)
    return int(number), int(of)


def entries(operators: Sequence[str], dtypes: Sequence[str]) -> Iterator[Entry]:
    """Every champion of these operators in these dtypes."""
    for name in operators:
        yield from (Entry(name, record) for record in champions(load(name).folder) if record.dtype in dtypes)


def share(found: Iterator[Entry], part: tuple[int, int]) -> list[Entry]:
    """The I-th of N shares, dealt out in turns, so that each has something of every family."""
    return list(found)[part[0] - 1 :: part[1]]


def offers(chosen: Sequence[Entry], instead: Sequence[Path]) -> list[list[Entry]]:
    """Return every champion with the files that may take its place: all of them alone, or those with files beside it.

    It raises UserError where files are for none or several champions of this GPU's kind.
    """
    if not instead:
        return [[entry] for entry in chosen]
    place = place_of(device_facts().name)
    fitting = [entry for entry in chosen if is_of(entry.record.file, place, entry.record.dtype)]
    if any(path.is_dir() for path in instead):
        files = sorted(file for path in instead for file in (path.glob("*.cu") if path.is_dir() else [path]))
        found = [[file for file in files if file.stem.partition("-")[0] == entry.operator] for entry in fitting]
        if not any(found):
            raise UserError(f"--instead: no file is called after an operator with a champion of {place}, as relu.cu is")
    elif len(fitting) == 1:
        found = [[*instead]]
    else:
        names = ", ".join(f"{e.operator} {e.record.dtype}" for e in fitting) or "none"
        raise UserError(f"--instead wants one champion of {place}, by --operators and --dtypes, not {names}")
    return [
        [entry, *(replace(entry, instead=path) for path in paths)]
        for entry, paths in zip(fitting, found, strict=True)
        if paths
    ]


def fastest(offer: Sequence[Entry], judged: Callable[[Entry], Row]) -> Entry:
    """Print how a champion and other files fared by size, and return the one that is right and the fastest.

    It is the champion, which comes first, where no other is right; alone it is not judged.
    """
    champion = offer[0]
    if len(offer) == 1:
        return champion
    right: list[tuple[float, Entry]] = []
    known: Mapping[str, Sequence[float]] = {}
    for entry in offer:
        row = judged(entry)
        name = entry.instead or f"{entry.operator} {entry.record.dtype}, {entry.record.file}"
        print(f"{name}: {row['status']} {_times(row.get('over_naive'))} {row['message']}".rstrip(), flush=True)
        if entry is champion:
            known = row.get("beside_naive", {})
        else:
            print(*beside(row, known, champion.record.file), sep="\n", flush=True)
        if row["status"] == "correct":
            right.append((row["over_naive"][0], entry))
    return max(right, key=lambda found: found[0])[1] if right else champion


def beside(row: Row, known: Mapping[str, Sequence[float]], name: str) -> Iterator[str]:
    """Lines that say how a row's kernel fared by size, where another's is known, both beside the naive kernel."""
    for size, mine in row.get("beside_naive", {}).items():
        if size not in known:
            continue
        other, gain = known[size], math.log(mine[0] / known[size][0])
        se = math.hypot(*(math.log(high / low) / (2 * Z95) for _, low, high in (mine, other)))
        found = interval95(gain, se)
        slower = found[2] < math.exp(-MOST_SLOWER)
        yield f"{size}: {_times(found)} of {name}" + ", slower beyond doubt" * slower


def read_rows(path: Path | None) -> list[Row]:
    """The rows of the results; a line that was cut off is left out."""
    rows: list[Row] = []
    for line in path.read_text(encoding="utf-8").splitlines() if path and path.exists() else ():
        try:
            rows.append(json.loads(line))
        except ValueError:
            continue
    return rows


def current(rows: Sequence[Row]) -> list[Row]:
    """Those of kernels that stand in the folders now: what was judged of a champion says nothing of its successor."""
    names = sorted({row["operator"] for row in rows} & set(folders()))
    known = {entry.key for entry in entries(names, sorted(_dtypes(rows)))}
    return [row for row in rows if _key(row) in known]


def _key(row: Mapping[str, Any]) -> Key:
    return row["operator"], row["dtype"], row["file"], row.get("kernel", "")


def _judged(entry: Entry, options: argparse.Namespace, folder: Path, level: Level) -> Row:
    """The row of one kernel; a verdict that the engine could not reach is told as `lost`."""
    begin, operator = time.monotonic(), load(entry.operator)
    workloads = options.workloads or entry.record.workloads
    if options.unlisted:
        workloads, operator = UNLISTED, drawn(entry, options.unlisted, options.seed, device_facts().plan_facts)
    row = _begun(entry) | {"device": device_facts().name, "workloads": workloads}
    row |= {"judged": date.today().isoformat(), "versions": kept_versions("cuda", driver_version())}
    task = Task(entry.operator, entry.record.dtype, "cuda")
    stage = CudaFitness(operator, task, workload_set=workloads, folder=folder)
    try:
        found = climb(stage, entry.kernel, level)
        row |= told(found)
        if share := of_roofline(operator, entry.record.dtype, found, peaks("cuda")):
            row["of_roofline"] = share
    except UserError as error:
        row |= {"status": "lost", "message": " ".join(str(error).split())[:300]}
    finally:
        stage.close()
    return row | {"seconds": round(time.monotonic() - begin, 1)}


def drawn(entry: Entry, most: int, seed: int, facts: Mapping[str, int]) -> Operator:
    """Return a champion's operator with a set UNLISTED of at most so many sizes that it takes, and that no file lists.

    Half of them lie beside those of its record's set, odd and round in turn, half between these and hidden shapes.
    `facts` are those of the device that a plan may use.
    """
    operator, rng = load(entry.operator), np.random.default_rng(seed)
    shapes, plan = UnlistedShapes(operator), parse_plan(entry.kernel.source, operator, "cuda")
    workloads = operator.workload_set(entry.record.workloads)
    found: dict[str, Workload] = {}
    for number in range(DRAWS * most):
        if len(found) == most:
            break
        near = workloads[int(rng.integers(len(workloads)))]
        shape = shapes.between(near, rng) if number % 2 else shapes.beside(near, rng, odd=number % 4 == 0)
        if shape is None:
            continue
        dims = operator.environment(shape.dims) | dict.fromkeys(operator.data_dims, 1)
        if plan.supports(operator, dims, entry.kernel.values, facts, entry.record.dtype):
            found.setdefault(shape.name, replace(shape, set=UNLISTED))
    return replace(operator, workloads=(*operator.workloads, *found.values()))


def _begun(entry: Entry) -> Row:
    return dict(zip(("operator", "dtype", "file", "kernel"), entry.key, strict=True))


def recorded(entry: Entry) -> Row | None:
    """The row that a champion's record makes; None where no run confirmed it, so that it is to be judged."""
    record = entry.record
    if record.level != Level.CONFIRMED.value or not record.over_naive_interval:
        return None
    row = _begun(entry) | {"device": record.device}
    row |= {"workloads": record.workloads, "status": record.status, "level": record.level, "message": ""}
    row |= {"judged": record.judged.isoformat()} if record.judged else {}
    row["flagged"] = record.flagged
    row |= {"over_naive": [record.over_naive, *record.over_naive_interval], "seconds": 0.0}
    row |= {"beside_naive": record.over_naive_by_size, "beside_library": record.over_library_by_size}
    if record.over_library_interval:
        row |= {"over_library": [record.over_library, *record.over_library_interval]}
        row |= {"library": "; ".join(record.library)}
        row["kinds"] = sorted({kind_of(name) for name in record.library})
        row["untried"] = "; ".join(record.untried)
    return row | ({"of_roofline": record.of_roofline} if record.of_roofline else {})


def one_each(rows: Sequence[Row]) -> list[Row]:
    """Return one row of each task: of one beside all rivals, of a champion on the device that it was made for.

    So where two devices have a champion of their own, the one counts whose rivals are all known, and then the one that
    was judged last.
    """
    told: dict[tuple[str, str], Row] = {}
    for row in sorted(sorted(rows, key=_judged_at, reverse=True), key=_lacks):
        told.setdefault((row["operator"], row["dtype"]), row)
    return list(told.values())


def _lacks(row: Row) -> tuple[bool, ...]:
    return "over_library" not in row, bool(row.get("untried")), not _is_home(row)


def _judged_at(row: Row) -> str:
    return str(row.get("judged") or "")


def _is_home(row: Row) -> bool:
    return is_of(row["file"], place_of(row["device"]), row["dtype"])


def record(rows: Sequence[Row]) -> int:
    """Write what was measured into the records of the champions; return how many records changed.

    A record that was measured beside all rivals, or a compiled one, stays where some were not tried now, and those of
    another device's champions stay whatever they are worth on this one.
    """
    by_key = {_key(row): row for row in rows if _may_stand(row)}
    changed = 0
    for name in sorted({row["operator"] for row in by_key.values()}):
        operator = load(name)
        known = champions(operator.folder)
        found = [_renewed(entry, by_key.get(entry.key)) for entry in (Entry(name, each) for each in known)]
        changed += sum(new is not old for new, old in zip(found, known, strict=True))
        write_records(operator, found)
    return changed


def _may_stand(row: Row) -> bool:
    """Whether a row is what a record may say: of listed sizes, beside a rival, on the champion's own device."""
    return bool(row.get("over_library")) and row["workloads"] != UNLISTED and _is_home(row)


def _renewed(entry: Entry, row: Row | None) -> Champion:
    known = entry.record
    if row is None or (row["untried"] and (not known.untried or "compiled" in map(kind_of, known.library))):
        return known
    # A note is one on the verdict that this one takes the place of.
    return known.model_copy(update=_figures(row) | {"text_digest": text_digest(entry.kernel.source), "note": ""})


def _figures(row: Row) -> dict[str, Any]:
    """Those of a record that a row tells."""
    naive, library = ([float(f"{each:.4g}") for each in row[key]] for key in ("over_naive", "over_library"))
    return {
        "device": row["device"], "workloads": row["workloads"], "level": row["level"], "status": row["status"],
        "over_naive": naive[0], "over_naive_interval": tuple(naive[1:]),
        "over_library": library[0], "over_library_interval": tuple(library[1:]),
        "library": tuple(row["calls"]), "untried": (row["untried"],) if row["untried"] else (),
        "over_naive_by_size": _around(row.get("beside_naive")),
        "over_library_by_size": _around(row.get("beside_library")),
        "of_roofline": row.get("of_roofline"), "flagged": row.get("flagged", ""),
        "versions": row.get("versions", {}), "judged": date.fromisoformat(row["judged"]),
    }  # fmt: skip


def _around(by_size: Mapping[str, Sequence[float]] | None) -> dict[str, tuple[float, ...]]:
    return {size: tuple(map(float, around)) for size, around in (by_size or {}).items()}


def climb(stage: Any, kernel: Kernel, highest: Level) -> Evaluation:
    """The evaluation of the most severe level that the kernel reached, against the naive kernel on each."""
    built = stage.build(kernel)
    if isinstance(built, Evaluation):
        return built
    fitness: Fitness = stage
    anchor = Anchor(fitness.baseline, 0.0, 0.0)
    found = screened = fitness.screen(kernel, anchor, race=False)
    if found.correct and highest is not Level.SCREEN:
        found = fitness.full(kernel, full_anchor(screened, anchor, fitness.baseline))
    if found.correct and highest is Level.CONFIRMED:
        fitness.choose_rivals()
        found = fitness.confirm(kernel)
    return found


def told(found: Evaluation) -> Row:
    """The row of a verdict."""
    row: Row = {"status": str(found.status), "level": str(found.level), "message": found.message[:400]}
    row["flagged"] = flags(found.facts)
    if found.log_speedup is not None and found.log_speedup_se is not None:
        row["over_naive"] = _interval(LogRatio(found.log_speedup, found.log_speedup_se))
        row["beside_naive"] = _by_workload(found.timings)
        row["latency_us"] = {timing.workload: round(timing.latency_us, 3) for timing in found.timings}
    if found.library_timings:
        row["over_library"] = _interval(mean([LogRatio(t.log_ratio, t.log_ratio_se) for t in found.library_timings]))
        row["library"] = library_calls(found.library_timings)
        row["kinds"] = sorted({t.kind for t in found.library_timings})
        row["calls"] = [*dict.fromkeys(called(t.library, t.kind) for t in found.library_timings)]
        row["untried"] = found.library_timings[0].untried
        row["beside_library"] = _by_workload(found.library_timings)
    return row | ({"library_lack": found.library_lack} if found.library_lack else {})


def of_roofline(operator: Operator, dtype: str, found: Evaluation, limits: Peaks) -> float | None:
    """The share of what the roofline allows, a geometric mean over the workloads whose costs need no data."""
    known, shares = {workload.name: workload.dims for workload in operator.workloads}, []
    for timing in found.timings:
        try:
            model = roofline(operator, known[timing.workload], dtype, limits)
        except ExpressionError:
            continue
        shares.append(model.efficiency(timing.latency_us))
    return round(geometric_mean(shares), 4) if shares and all(shares) else None


def _by_workload(timings: Sequence[Timing]) -> dict[str, list[float]]:
    return {t.workload: _interval(LogRatio(t.log_ratio, t.log_ratio_se)) for t in timings}


def _interval(ratio: LogRatio) -> list[float]:
    """The ratio and the ends of its 95 % interval."""
    return [round(end, 4) for end in interval95(ratio.value, ratio.se)]


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Markdown: a line for each kernel and dtype, then what was not right, in its own words."""
    records = {
        entry.key: entry.record for entry in entries(sorted({row["operator"] for row in rows}), list(_dtypes(rows)))
    }
    right = sum(row["status"] == "correct" for row in rows)
    lines = [
        f"{', '.join(sorted({row['device'] for row in rows}))}: {right} of {len(rows)} correct, "
        f"{sum(row['seconds'] for row in rows):.0f} s. `then`: as the kernel was taken in.",
        "",
        "| operator | dtype | status | level | over naive | then | over library | then | s |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for row in sorted(rows, key=_key):
        then = records.get(_key(row))
        cells = (
            row["operator"], row["dtype"], row["status"], row.get("level", "-"),
            _times(row.get("over_naive")), _then(then.over_naive if then else None),
            _times(row.get("over_library")), _then(then.over_library if then else None), f"{row['seconds']:.0f}",
        )  # fmt: skip
        lines.append(f"| {' | '.join(cells)} |")
    refused = [row for row in rows if row["status"] != "correct"]
    return "\n".join([*lines, "", *(f"- {r['operator']} {r['dtype']}: {r['status']}: {r['message']}" for r in refused)])


def _dtypes(rows: Sequence[Mapping[str, Any]]) -> set[str]:
    return {row["dtype"] for row in rows}


def _times(interval: Sequence[float] | None) -> str:
    return f"{interval[0]:.3g}x ({interval[1]:.3g}-{interval[2]:.3g})" if interval else "-"


def _then(speedup: float | None) -> str:
    return f"{speedup:.3g}x" if speedup else "-"


if __name__ == "__main__":
    try:
        main()
    except UserError as error:
        sys.exit(str(error))
