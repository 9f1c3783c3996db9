"""One kernel judged as KernelBench judges it: `python -m tests.bench.gpu_rival JOB`, in a process of its own.

JOB is a JSON object with `operator`, `source`, `values_json` and `workloads`, whose first workload is taken. The plan
becomes a host function, nvcc builds it with torch's load_inline, 5 trials are compared with torch, 100 calls are timed.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import numpy as np
import torch
from torch.utils.cpp_extension import load_inline

from fitness.cuda.driver import device_facts
from fitness.inputs import TORCH_DTYPES, draw
from operators.catalog import functions, load
from operators.dtypes import resolve_dtype
from operators.kernel import Kernel
from operators.plan import ResolvedPlan, parse_plan
from operators.prelude import translation_unit
from operators.spec import Operator

DTYPE = "fp32"
TRIALS, TIMINGS = 5, 100


def host_function(plan: ResolvedPlan, operator: Operator) -> str:
    """C++ that launches the plan on tensors in the order of their names."""
    names = [t.name for t in operator.tensors] + [b.name for b in plan.buffers]
    lines = ["struct Any { void* at; template <class X> operator X*() const { return (X*)at; } };"]
    lines.append("void evo_run(std::vector<torch::Tensor> t) {")
    for step in plan.steps:
        values = []
        for argument in step.args:
            if argument.kind in ("tensor", "buffer"):
                values.append(f"Any{{t[{names.index(argument.name)}].data_ptr()}}")
            elif argument.kind == "scalar":
                values.append(repr(next(s.value for s in operator.scalars if s.name == argument.name)))
            else:
                values.append(str(argument.value))
        grid, block = (", ".join(map(str, shape)) for shape in (step.grid, step.block))
        lines.append(f"    {step.kernel}<<<dim3({grid}), dim3({block}), {step.shared_bytes}>>>({', '.join(values)});")
    return "\n".join([*lines, "}"])


def main() -> None:
    job = json.loads(Path(sys.argv[1]).read_text())
    operator = load(job["operator"])
    offers = functions(operator.folder)
    kernel = Kernel(operator.name, "cuda", job["source"], json.loads(job["values_json"]))
    workload = operator.workload_set(job["workloads"])[0]
    parsed = parse_plan(kernel.source, operator, "cuda")
    rng = np.random.default_rng()
    drawn = draw(operator, offers, dims=workload.dims, dtype=DTYPE, family="nominal", rng=rng)
    plan = parsed.resolve(
        operator, dtype=DTYPE, dims=drawn.dims, values=kernel.values, facts=device_facts().plan_facts, occupancy={}
    )
    unit = translation_unit(kernel.source, operator, parsed, target="cuda", dtype=DTYPE, values=kernel.values)
    begin = time.monotonic()
    module = load_inline(
        name="rival",
        cpp_sources="void evo_run(std::vector<torch::Tensor> t);",
        cuda_sources=unit + "\n" + host_function(plan, operator),
        functions=["evo_run"],
        extra_cuda_cflags=["-O3", "-std=c++17"],
    )
    build_s = time.monotonic() - begin
    right = True
    scalars = {s.name: s.value for s in operator.scalars}
    for _ in range(TRIALS):
        drawn = draw(operator, offers, dims=workload.dims, dtype=DTYPE, family="nominal", rng=rng)
        inputs = {name: tensor.cuda() for name, tensor in drawn.tensors.items()}
        tensors = dict(inputs)
        for tensor in operator.outputs:
            dtype = TORCH_DTYPES[resolve_dtype(tensor.dtype, DTYPE).name]
            tensors.setdefault(tensor.name, torch.empty(tensor.sizes(drawn.dims), dtype=dtype, device="cuda"))
        scratch = [torch.empty(b.bytes, dtype=torch.uint8, device="cuda") for b in plan.buffers]
        order = [tensors[t.name] for t in operator.tensors] + scratch
        expected = offers.reference({**drawn.dims, **scalars, **{n: t.double() for n, t in inputs.items()}})
        module.evo_run(order)
        torch.cuda.synchronize()
        right &= all(torch.allclose(tensors[n].double(), y, rtol=1e-4, atol=1e-4) for n, y in expected.items())
    times = []
    for _ in range(TIMINGS):
        begin_event, end_event = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin_event.record()
        module.evo_run(order)
        end_event.record()
        torch.cuda.synchronize()
        times.append(begin_event.elapsed_time(end_event))
    print(json.dumps({"build_s": round(build_s, 2), "right": right, "median_ms": float(np.median(times))}))


if __name__ == "__main__":
    main()
