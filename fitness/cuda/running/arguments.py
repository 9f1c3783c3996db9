"""A resolved plan as the kernel calls of one run."""

from __future__ import annotations

from collections.abc import Mapping

from fitness.cuda.compile.program import KernelCall, Program, Value
from fitness.judging.signature import Param, packed
from operators.definition.spec import Operator
from operators.plan.reading import ResolvedPlan


def program(plan: ResolvedPlan, params: Mapping[str, tuple[Param, ...]], operator: Operator) -> Program:
    """The runner's program. The arguments must have been checked."""
    calls = []
    for step in plan.steps:
        args: list[Value] = []
        for argument, param in zip(step.args, params[step.kernel], strict=True):
            if argument.kind in ("tensor", "buffer"):
                args.append(("buffer", argument.name))
            elif argument.kind == "map":
                args.append(("map", argument.name))
            else:
                args.append(packed(argument, param, operator))
        sizes = step.grid, step.block, step.cluster, step.shared_bytes
        calls.append(KernelCall(step.kernel, tuple(args), *sizes, step.cooperative, step.overlap))
    return Program(plan.zero, tuple(calls), plan.tensor_maps)
