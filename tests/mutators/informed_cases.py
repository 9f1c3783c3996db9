"""Prompts of three operators, three stages and two targets, kept as golden files; as a module, it writes them anew.

The system message is kept once for each operator and target: it is the same at every stage.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from fitness.evaluation import CheckError, Evaluation, Level, Status, Timing
from fitness.judging.base import DeviceInfo
from fitness.profiling.roofline import Peaks
from mutators.base import Message, Parent, Request
from mutators.briefing import Attempt, Briefing, Ratio, Standing, Winner
from mutators.prompts import conversation
from operators.catalog import load
from operators.definition.spec import Operator, Task, Workload
from operators.kernel import Kernel

FOLDER = Path(__file__).parent / "golden" / "prompts" / "informed"
OPERATORS = {"softmax": "fp32", "matrix_mul": "bf16", "spmv_csr": "fp32"}
"""Operators with the dtype on cuda."""
STAGES = ("rewrite", "crossover", "repair")
TARGETS = ("cpu", "cuda")
CASES = tuple((operator, stage, target) for operator in OPERATORS for stage in STAGES for target in TARGETS)
SETS = {"cpu": "cpu", "cuda": "published"}
DEVICES = {
    "cuda": DeviceInfo(
        "an NVIDIA H200 (compute capability 9.0, 132 SMs, at most 232448 bytes of shared memory per block, 60 MiB of "
        "L2 cache, 4917 GB/s of memory bandwidth)",
        {"sm_count": 132, "warp_size": 32, "max_shared_bytes": 232448, "l2_bytes": 60 << 20},
        (
            "each SM has 65536 registers of 32 bits (255 per thread at most), 228 KiB of shared memory (of which a "
            "block may have 227 KiB) and room for 2048 threads",
            "compiled for sm_90a: TMA (cp.async.bulk), mbarrier, wgmma, thread-block clusters, setmaxnreg; also "
            "cp.async, mbarrier, ldmatrix and mma.sync with fp16, bf16, TF32 and int8",
        ),
        Peaks(
            "NVIDIA H200", 4300.0, 3900.0, {"fp64": 66900.0, "fp32": 66900.0, "bf16": 1070000.0}, 2.1,
            ways_gflop_s={"fp32": 178000.0},
        ),
    ),
    "cpu": DeviceInfo(
        "8 cores of an Example CPU (2048 KiB of L2 cache per core)",
        {"cpu_count": 8, "l2_bytes": 2 << 20},
        ("x86_64 with avx2, fma, avx512f", "caches: L1 48 KiB, L2 2048 KiB, L3 32768 KiB (of cores 0-7)"),
        Peaks("Example CPU, 8 threads", 80.0, 60.0, {"fp32": 1800.0, "fp64": 900.0}, 2.5),
    ),
}  # fmt: skip


def kernels(operator: Operator, target: str) -> tuple[Kernel, Kernel, Kernel, Kernel]:
    """A tuned kernel, another one, one that fails, and one that wins somewhere: the naive one with comments."""
    naive = operator.naive(target)
    return tuple(  # type: ignore[return-value]
        Kernel(operator.name, target, f"{naive}// {words}\n")
        for words in ("in tiles", "by threads", "broken", "vectors")
    )


def standing(workloads: tuple[Workload, ...], *logs: float) -> Standing:
    """Speedups over the naive kernel, the last ones the same."""
    return {w.name: Ratio(logs[min(place, len(logs) - 1)], 0.01 + 0.1 * place) for place, w in enumerate(workloads)}


def verdict(kernel: Kernel, task: Task, log_speedup: float, known: Standing) -> Evaluation:
    """A correct one, with what prompts may tell of it."""
    return Evaluation(
        kernel.id, str(task), Level.FULL, Status.CORRECT, log_speedup=log_speedup, log_speedup_se=0.02,
        timings=tuple(Timing(name, 10.0, 15.0, ratio.log, ratio.se, 20) for name, ratio in known.items()),
        errors=(CheckError("n=3", "y", "scaled", 0.31, 0, rms_ratio=0.12), CheckError("n=3", "y", "nominal", 0.02, 0)),
        facts={"code_bytes": 4096, "registers": 64, "spill_bytes": 0, "flagged": [], "tensor_cores": True},
        stage_ms={"build": 41_200.0},
    )  # fmt: skip


def briefing(operator: Operator, task: Task, *, asked_before: int = 1) -> Briefing:
    """The briefing on the task."""
    workloads = tuple(w for w in operator.workloads if w.set == SETS[task.target])
    first, second, _, winner = kernels(operator, task.target)
    return Briefing(
        DEVICES[task.target],
        {w.name: 5000.0 + 1000 * place for place, w in enumerate(workloads)},
        standing(workloads, 2.5, 3.0),
        best_id=winner.id,
        best=standing(workloads, 1.8, 0.4),
        parents={first.id: standing(workloads, 0.9, 0.5), second.id: standing(workloads, 0.1, 1.1)},
        tried=(Attempt("unroll by 4", "slower", Ratio(-0.2, 0.05)), Attempt("prefetch", "correct", Ratio(0.02, 0.03))),
        helped=(
            Attempt("read vectors of four", "correct", Ratio(0.6, 0.01), task=str(task)),
            Attempt("two rows at a time", "correct", Ratio(0.3, 0.01), task="rms_norm/fp32/cpu"),
        ),
        fruitless=(Attempt("threads for everything", "slower", Ratio(-1.1, 0.3)),),
        failed=(Attempt("one pass", "wrong", message="y on n=7 (specials): 1 of 7 elements is wrong"),),
        winners=(Winner(winner, standing(workloads, 1.8, 0.4), (workloads[0].name,)),),
        open_here=1,
        open_elsewhere=2,
        asked_before=asked_before,
    )


def asked(operator_name: str, stage: str, target: str) -> tuple[Message, ...]:
    """The messages of one case."""
    operator = load(operator_name)
    task = Task(operator_name, OPERATORS[operator_name] if target == "cuda" else "fp32", target)
    known = briefing(operator, task)
    first, second, broken, _ = kernels(operator, target)
    good = [Parent(k, verdict(k, task, log, known.parents[k.id])) for k, log in ((first, 0.7), (second, 0.6))]
    message = "y on rows=3 (nominal): 1 of 3 elements is wrong, the first at [0]"
    wrong = Parent(broken, Evaluation(broken.id, str(task), Level.SCREEN, Status.WRONG, message))
    profile = ("roofline: in the table", "memory is busy 85 % of the time", "line 10: loop not vectorized")
    parents = {"rewrite": good[:1], "crossover": good, "repair": [wrong, good[0]]}[stage]
    parents[0] = replace(parents[0], briefing=known, profile=() if stage == "repair" else profile)
    ids = tuple(parent.kernel.id for parent in parents)
    request = Request(task, 7, stage, ids, 1, {"workload_set": SETS[target]}, model="m")
    return conversation(stage, request, tuple(parents), operator)


def files(operator: str, stage: str, target: str) -> tuple[Path, Path]:
    """Where the two messages of a case are kept."""
    return FOLDER / f"{operator}.{target}.system.md", FOLDER / f"{operator}.{target}.{stage}.md"


if __name__ == "__main__":
    FOLDER.mkdir(parents=True, exist_ok=True)
    for case in CASES:
        for path, said in zip(files(*case), asked(*case), strict=True):
            path.write_text(f"{said['content']}\n", encoding="utf-8")
