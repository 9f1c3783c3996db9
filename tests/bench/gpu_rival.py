"""One kernel judged as KernelBench judges it: `python -m tests.bench.gpu_rival JOB`, in a process of its own.

JOB is a JSON object with `operator`, `source`, `values_json` and `workloads`, whose first workload is taken. The plan
becomes a host function, nvcc builds it with torch's load_inline, 5 trials are compared with torch, 100 calls are timed.
"""

from __future__ import annotations

import json
import sys
import sysconfig
import time
from collections.abc import Callable
from pathlib import Path
from typing import cast

import numpy as np
import torch
from torch.utils.cpp_extension import load_inline

from fitness.cuda.running.driver import device_facts
from fitness.oracle.inputs import TORCH_DTYPES, draw
from operators.catalog import functions, load
from operators.definition.spec import Operator
from operators.dtypes import resolve_dtype
from operators.kernel import Kernel
from operators.plan.reading import ResolvedPlan, parse_plan
from operators.prelude import translation_unit

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


def built(source: str) -> Callable[[list[torch.Tensor]], object]:
    """The function that load_inline makes of it: of a Python module, or an operator of torch where Python's headers are
    missing."""
    # <cuda.h>, which torch's headers bring along, has a CUtensorMap of its own.
    source = f"#define CUtensorMap_st evo_CUtensorMap_st\n#define CUtensorMap evo_CUtensorMap\n{source}"
    options = {"name": "rival", "extra_cuda_cflags": ["-O3"]}
    declared = "void evo_run(std::vector<torch::Tensor> t);"
    if Path(sysconfig.get_paths()["include"], "Python.h").is_file():
        module = load_inline(cpp_sources=declared, cuda_sources=source, functions=["evo_run"], **options)
        return cast(Callable[[list[torch.Tensor]], object], module.evo_run)
    headers = "#include <torch/types.h>\n#include <torch/library.h>\n#include <cuda_runtime.h>\n"
    entry = "void entry(at::TensorList t) { evo_run(t.vec()); }\n"
    entry += 'TORCH_LIBRARY(rival, m) { m.def("evo_run(Tensor[] t) -> ()", entry); }\n'
    load_inline(
        cpp_sources=f"{headers}{declared}\n{entry}",
        cuda_sources=headers + source,
        no_implicit_headers=True,
        is_python_module=False,
        **options,
    )
    return cast(Callable[[list[torch.Tensor]], object], torch.ops.rival.evo_run)


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
    run = built(f"{unit}\n{host_function(plan, operator)}")
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
        run(order)
        torch.cuda.synchronize()
        right &= all(torch.allclose(tensors[n].double(), y, rtol=1e-4, atol=1e-4) for n, y in expected.items())
    times = []
    for _ in range(TIMINGS):
        begin_event, end_event = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin_event.record()
        run(order)
        end_event.record()
        torch.cuda.synchronize()
        times.append(begin_event.elapsed_time(end_event))
    print(json.dumps({"build_s": round(build_s, 2), "right": right, "median_ms": float(np.median(times))}))


if __name__ == "__main__":
    main()
