"""The numerical oracle on the GPU: fp64 references, bounds and judgements, in the memory that workers share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch

from fitness.cuda.memory import Block, CudaRegion, Pool
from fitness.inputs import TORCH_DTYPES, Inputs
from fitness.memory import Memory
from fitness.verify import Case, Oracle, Question, Related, Trusted
from operators.catalog import Functions
from operators.spec import Operator, Tensor


class CudaOracle(Oracle):
    """Like `Oracle`; inputs are drawn on the CPU, everything else happens on the device of `pool`."""

    def __init__(self, operator: Operator, functions: Functions, dtype: str, pool: Pool) -> None:
        super().__init__(operator, functions, dtype)
        self.pool = pool
        self.device = torch.device("cuda", pool.ordinal)
        self._library = functions.offers("library") and dtype in operator.dtypes.get("cuda", ())
        self._blocks: dict[tuple[str, int], Block] = {}
        self._last: tuple[Inputs, dict[str, torch.Tensor]] | None = None
        # What a second opinion is worth: sums of 16-bit products kept in fp32, fp32 products without TF32.
        torch.backends.cuda.matmul.allow_tf32 = False
        torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
        torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False

    def timed_blocks(self, dims: Mapping[str, int]) -> dict[str, Block]:
        """Memory for the outputs of timed calls, the same for whoever is timed.

        Where in physical memory an output lies can make a kernel half as fast again; a pair must not differ in that.
        """
        sizes = self.work_sizes(dims)
        for key in sizes.items():
            if key not in self._blocks:
                self._blocks[key] = self.pool.take(key[1])
        return {name: self._blocks[name, size] for name, size in sizes.items()}

    def related_problem(
        self,
        related: Related,
        before: Mapping[str, torch.Tensor],
        after: Mapping[str, torch.Tensor],
        *,
        deterministic: bool = True,
    ) -> str | None:
        # Relations hold permutations and masks on the CPU, and are asked for seldom.
        there = replace(related, before=_on_cpu(related.before), after=_on_cpu(related.after))
        found = [{name: y.cpu() for name, y in outputs.items()} for outputs in (before, after)]
        return super().related_problem(there, *found, deterministic=deterministic)

    def _region(self, sizes: Mapping[str, int], *, at_end: bool) -> CudaRegion:
        return CudaRegion(self.pool, sizes, at_end=at_end)

    def _write(self, memory: Memory, name: str, value: torch.Tensor) -> None:
        assert isinstance(memory, CudaRegion)
        if value.numel():
            memory.tensor(name).copy_(value.contiguous().reshape(-1).view(torch.uint8))

    def _read(self, work: Memory, tensor: Tensor) -> Any:
        assert isinstance(work, CudaRegion)
        return work.tensor(tensor.name, TORCH_DTYPES[self.element(tensor).name])

    def _placed(self, inputs: Inputs) -> Mapping[str, torch.Tensor]:
        if self._last is None or self._last[0] is not inputs:
            self._last = inputs, {name: t.to(self.device) for name, t in inputs.tensors.items()}
        return self._last[1]

    def _flat(self, value: torch.Tensor) -> torch.Tensor:
        return value.to(self.device, torch.float64).reshape(-1)

    def _answered(self, question: Question, trusted: Trusted | None) -> Case:
        try:
            return super()._answered(question, trusted)
        except torch.OutOfMemoryError:
            self._last = None
            self.pool.trim()
            return super()._answered(question, trusted)
        finally:
            self._last = None


def _on_cpu(case: Case) -> Case:
    expected, allowed = (
        {name: values.cpu().numpy() for name, values in tensors.items()} for tensors in (case.expected, case.allowed)
    )
    return replace(case, expected=expected, allowed=allowed)
