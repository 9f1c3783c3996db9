"""Gain by trials of tuning: samplers of the mutator `tune` and random settings, on ten kernels measured whole.

    taskset -c 1 python -m tests.bench.tuning measure --into tests/data/tuning.json.xz     # half an hour
    python -m tests.bench.tuning simulate --seeds 20

`measure` makes ten kernels of the operators (the naive kernel after the transforms of CHAINS), calls each in every
setting on the cpu target, and keeps log speedups over the naive kernel by the shortest calls, with the files: a table
is to be what a quiet machine shows, so it takes one core (`taskset`) and no medians. `simulate` plays searches over
these tables: the first trial is the default, and each tells what was measured. It prints, for every kernel and number
of trials, how much slower than the fastest setting of its table the best one found is (percent, mean over the seeds),
for random settings and for the mutator with each sampler of `mutators.tuning.samplers`; then the means over the tables,
with 95 % intervals over the seeds, and the processor time that a request takes. A table's fastest setting owes part of
its lead to noise, for all of them alike. No similar file is known here, so that `siblings` play no part.
"""

from __future__ import annotations

import argparse
import json
import lzma
import math
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from random import Random

import numpy as np
from scipy import stats

from fitness.cpu.target import CpuFitness
from fitness.evaluation import Rejection
from fitness.judging.device import KernelFault, KernelSession
from mutators.base import Kind, Parent, Request, Trial
from mutators.transforms.mutator import Transform
from mutators.tuning.samplers import SAMPLERS
from mutators.tuning.tune import Tune
from operators.catalog import load
from operators.definition.spec import Task
from operators.kernel import Kernel
from operators.plan.reading import parse_plan

TABLES = Path(__file__).parent.parent / "data" / "tuning.json.xz"
CHAINS: Mapping[str, tuple[str, ...]] = {
    "matrix_mul": ("register_tile", "tile"),
    "matrix_vector_mul": ("parallel_dynamic", "accumulator_tile", "tile"),
    "conv_2d": ("split_reduction", "tile", "tile"),
    "stencil_3d": ("tile", "tile", "tile"),
    "matrix_transpose": ("parallel_dynamic", "tile", "tile"),
    "spmv_csr": ("parallel_dynamic", "prefetch", "tile"),
    "rms_norm": ("parallel_dynamic", "split_reduction", "tile"),
    "softmax": ("parallel_dynamic", "split_reduction", "tile"),
    "fft": ("parallel_dynamic", "tile", "tile"),
    "max_pooling_2d": ("parallel_dynamic", "tile", "tile"),
}
"""By operator, transforms of its naive kernel."""
PASSES, CALLS, LEAST_CALLS, CALLS_S = 2, 12, 3, 0.1
"""Effort for one setting on one workload: passes, calls in each, at most and at least, and seconds after which it is
enough."""
CHECKPOINTS = (8, 16, 32)
"""Trials, that of the default included."""


@dataclass(frozen=True)
class Table:
    """One kernel and what became of every setting of its tunables."""

    kernel: Kernel
    log_speedups: Mapping[tuple[int, ...], float | None]
    """Log speedups over the naive kernel, by the values in the plan's order; None: it failed."""

    @property
    def tune(self) -> Mapping[str, tuple[int, ...]]:
        """The tunables with their values, the default first."""
        return parse_plan(self.kernel.source, load(self.kernel.operator), self.kernel.target).tune

    @property
    def best(self) -> float:
        """The fastest setting's log speedup."""
        return max(value for value in self.log_speedups.values() if value is not None)

    @property
    def default(self) -> float:
        """The log speedup of the file as it is; that of the slowest setting where the default fails."""
        found = self.log_speedups[tuple(values[0] for values in self.tune.values())]
        return found if found is not None else min(v for v in self.log_speedups.values() if v is not None)


Choice = Callable[[Table, tuple[Trial, ...], int], dict[str, int]]
"""The values of the next trial, by what was tried and a seed."""


# --- measuring ------------------------------------------------------------------------------------------------------


def tunable(operator_name: str, chain: Sequence[str]) -> Kernel:
    """Return the naive kernel after these transforms. Raises ValueError where one does not apply."""
    operator = load(operator_name)
    kernel = Kernel(operator_name, "cpu", operator.naive("cpu"))
    for number, name in enumerate(chain):
        request = Request(Task(operator_name, "fp32", "cpu"), number, "transform", (kernel.id,), 1, {"rewrite": name})
        proposal = Transform().propose(request, (Parent(kernel),), operator)
        if proposal.kernel is None:
            raise ValueError(f"{operator_name}: {proposal.failure}")
        kernel = proposal.kernel
    return kernel


def measured(kernel: Kernel) -> Table:
    """Return the kernel's table. Every setting is called in PASSES passes, each in a random order of its own."""
    operator = load(kernel.operator)
    naive = Kernel(kernel.operator, "cpu", operator.naive("cpu"))
    tune = parse_plan(kernel.source, operator, "cpu").tune
    settings = list(product(*tune.values()))
    children = {
        s: kernel.with_values({n: v for n, v in zip(tune, s, strict=True) if v != tune[n][0]}) for s in settings
    }
    with tempfile.TemporaryDirectory() as folder:
        stage = CpuFitness(operator, Task(kernel.operator, "fp32", "cpu"), workload_set="cpu", folder=Path(folder))
        try:
            base_us = fastest_us(stage, naive)
            assert base_us
            best_us: dict[tuple[int, ...], list[float] | None] = {}
            for number in range(PASSES):
                for setting in Random(number).sample(settings, len(settings)):
                    now, before = fastest_us(stage, children[setting]), best_us.get(setting)
                    best_us[setting] = list(map(min, now, before)) if now and before else now
        finally:
            stage.close()
    return Table(kernel, {s: _mean_log(base_us, us) if us else None for s, us in best_us.items()})


def fastest_us(stage: CpuFitness, kernel: Kernel) -> list[float] | None:
    """Return the shortest of several calls on each workload, which other work disturbed least; None if it is wrong."""
    prepared = stage.device.prepare(kernel)
    if isinstance(prepared, Rejection):
        return None
    found = []
    try:
        with stage.bench.session(prepared) as session:
            for placed in stage.bench.inputs.seated(session, disguised=False).nominal:
                slot, case = placed[0]
                if any(error.wrong for error in stage.bench.checks.check(session, prepared, case)):
                    return None
                session.bind(slot, case, at_end=False)
                found.append(min(_calls_us(session, slot)))
    except KernelFault:
        return None
    return found


def _calls_us(session: KernelSession, slot: int) -> Iterator[float]:
    began = time.monotonic()
    for number in range(CALLS):
        if number >= LEAST_CALLS and time.monotonic() - began > CALLS_S:
            return
        yield session.run(slot, poison=number, cold=True).elapsed_ns / 1e3


def _mean_log(base_us: Sequence[float], us: Sequence[float]) -> float:
    return sum(math.log(base / own) for base, own in zip(base_us, us, strict=True)) / len(us)


def measure(into: Path) -> None:
    """Measure every chain's kernel, and write the tables."""
    tables = []
    for name, chain in CHAINS.items():
        table = measured(tunable(name, chain))
        kernel = table.kernel
        rows = [[*setting, None if v is None else round(v, 4)] for setting, v in sorted(table.log_speedups.items())]
        tables.append({"operator": kernel.operator, "transforms": chain, "source": kernel.source, "rows": rows})
        into.write_bytes(lzma.compress(json.dumps(tables).encode()))
        failed = sum(v is None for v in table.log_speedups.values())
        print(
            f"{name}: {len(rows)} settings, {failed} failed; default {math.exp(table.default):.3g}, "
            f"best {math.exp(table.best):.3g} times the naive kernel", file=sys.stderr, flush=True,
        )  # fmt: skip


def read_tables(path: Path = TABLES) -> list[Table]:
    """Return what `measure` wrote."""
    stored = json.loads(lzma.decompress(path.read_bytes()))
    return [
        Table(Kernel(t["operator"], "cpu", t["source"]), {tuple(row[:-1]): row[-1] for row in t["rows"]})
        for t in stored
    ]


# --- searching ------------------------------------------------------------------------------------------------------


def random_setting(table: Table, trials: tuple[Trial, ...], seed: int) -> dict[str, int]:
    """Return one of the settings that were not tried, all alike."""
    tried = {tuple(trial.values.values()) for trial in trials}
    left = [setting for setting in table.log_speedups if setting not in tried]
    return dict(zip(table.tune, Random(seed).choice(left), strict=True))


def by_sampler(sampler: str) -> Choice:
    """Return the choice of the mutator `tune` with this sampler."""
    tune = Tune(sampler)

    def choose(table: Table, trials: tuple[Trial, ...], seed: int) -> dict[str, int]:
        kernel = table.kernel
        params = {"workload_set": "cpu"}
        task = Task(kernel.operator, "fp32", "cpu")
        request = Request(task, 0, "tune", (kernel.id,), seed, params, trials, Kind.TRIAL)
        child = tune.propose(request, (Parent(kernel),), load(kernel.operator)).kernel
        assert child
        return {name: child.values.get(name, values[0]) for name, values in table.tune.items()}

    return choose


CHOICES: Mapping[str, Choice] = {"random": random_setting, **{name: by_sampler(name) for name in SAMPLERS}}


def searched(table: Table, choose: Choice, seed: int) -> list[float]:
    """Return the best log speedup after each trial of one search."""
    trials: list[Trial] = []
    best, found = -math.inf, []
    for number in range(max(CHECKPOINTS)):
        default = {name: values[0] for name, values in table.tune.items()}
        values = choose(table, tuple(trials), 10_000 * seed + number) if trials else default
        measured = table.log_speedups[tuple(values.values())]
        trials.append(Trial(values, measured))
        best = max(best, -math.inf if measured is None else measured)
        found.append(best)
    return found


def behind(table: Table, choose: Choice, seed: int) -> list[float]:
    """Return by how many percent the best setting found is slower than the fastest, at each checkpoint."""
    found = searched(table, choose, seed)
    return [100 * math.expm1(table.best - found[trials - 1]) for trials in CHECKPOINTS]


def simulate(path: Path, seeds: int, names: Sequence[str]) -> dict[str, np.ndarray]:
    """Print how far behind each choice is on every table; return that by choice: tables x seeds x checkpoints."""
    rows: dict[str, list[list[list[float]]]] = {name: [] for name in names}
    spent_s = dict.fromkeys(names, 0.0)
    print(f"{'kernel':20} {'settings':>8} {'default':>8}  " + _columns(names))
    tables = read_tables(path)
    for table in tables:
        for name in names:
            began = time.process_time()
            rows[name].append([behind(table, CHOICES[name], seed) for seed in range(seeds)])
            spent_s[name] += time.process_time() - began
        cells = ["/".join(f"{percent:.1f}" for percent in np.mean(rows[name][-1], axis=0)) for name in names]
        default = 100 * math.expm1(table.best - table.default)
        print(f"{table.kernel.operator:20} {len(table.log_speedups):8} {default:8.1f}  " + _columns(cells), flush=True)
    found = {name: np.array(each) for name, each in rows.items()}
    print(f"{'mean':38}  " + _columns(["/".join(f"{each:.2f}" for each in found[n].mean(axis=(0, 1))) for n in names]))
    print(f"{'95 % interval, +-':38}  " + _columns(["/".join(f"{e:.2f}" for e in half_width(found[n])) for n in names]))
    asked = len(tables) * seeds * (max(CHECKPOINTS) - 1)
    print(f"{'processor ms a request':38}  " + _columns([f"{1e3 * spent_s[name] / asked:.1f}" for name in names]))
    return found


def half_width(found: np.ndarray) -> np.ndarray:
    """Return half the 95 % interval of the mean over these tables at each checkpoint, by the spread over seeds."""
    means = found.mean(axis=0)
    seeds = len(means)
    if seeds < 2:
        return np.full(len(CHECKPOINTS), math.nan)
    width: np.ndarray = stats.t.ppf(0.975, seeds - 1) * means.std(axis=0, ddof=1) / math.sqrt(seeds)
    return width


def _columns(cells: Sequence[str]) -> str:
    return "".join(f"{cell:>24}" for cell in cells)


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("measure").add_argument("--into", type=Path, required=True)
    simulated = commands.add_parser("simulate")
    simulated.add_argument("--tables", type=Path, default=TABLES)
    simulated.add_argument("--seeds", type=int, default=20)
    simulated.add_argument("--choices", nargs="+", choices=CHOICES, default=list(CHOICES))
    given = parser.parse_args()
    if given.command == "measure":
        measure(given.into)
    else:
        trials = "/".join(map(str, CHECKPOINTS))
        print(f"slower than the fastest setting, in percent, after {trials} trials; mean of {given.seeds} searches")
        simulate(given.tables, given.seeds, given.choices)


if __name__ == "__main__":
    main()
