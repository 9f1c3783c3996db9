"""The numerical oracle on the GPU: fp64 references, bounds and judgements, in the memory that runners share."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from fitness.cases import Case, Question, Related, Trusted
from fitness.cuda.compare import judge
from fitness.cuda.memory import Block, BlockPool, CudaRegion
from fitness.inputs import TORCH_DTYPES, Inputs
from fitness.memory import Memory
from fitness.verify import Oracle
from operators.catalog import Functions
from operators.relations import Relation
from operators.spec import Operator, Tensor


class CudaOracle(Oracle):
    """Like `Oracle`; everything happens on the device of `pool`, but for what reference.py draws itself."""

    def __init__(self, operator: Operator, functions: Functions, dtype: str, pool: BlockPool) -> None:
        super().__init__(operator, functions, dtype)
        self.pool = pool
        self.device = torch.device("cuda", pool.ordinal)
        self._library = functions.offers("library") and dtype in operator.dtypes.get("cuda", ())
        self._blocks: dict[tuple[str, int], Block] = {}
        self._last: tuple[Inputs, dict[str, torch.Tensor]] | None = None
        # What a second opinion is worth: sums of 16-bit products kept in fp32, fp32 products without TF32.
        torch.backends.cuda.matmul.allow_tf32 = False
        torch.backends.cudnn.allow_tf32 = False  # of convolutions
        torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
        torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False

    def timed_blocks(self, dims: Mapping[str, int]) -> dict[str, Block]:
        """Memory for the outputs of timed calls, the same for every kernel that is timed.

        Where in physical memory an output lies can make a kernel half as fast again; a pair must not differ in that.
        """
        sizes = self.work_sizes(dims)
        for key in sizes.items():
            if key not in self._blocks:
                self._blocks[key] = self.pool.take(key[1])
        return {name: self._blocks[name, size] for name, size in sizes.items()}

    def forget(self) -> None:
        """Give memory back to the device that no case holds."""
        self._last = None
        self.pool.give_back(self._blocks.values())
        self._blocks.clear()
        self.pool.trim()

    def related_problem(
        self,
        related: Related,
        before: Mapping[str, torch.Tensor],
        after: Mapping[str, torch.Tensor],
        *,
        deterministic: bool = True,
    ) -> str | None:
        expected, slack = _expected(related.relation, before, self.device), self._moved_by(related)
        for name, wanted in expected.items():
            element, found = self.element(self._outputs[name]), after[name].reshape(-1)
            if related.relation.exact and deterministic:
                wanted = wanted.to(TORCH_DTYPES[element.name]).double()
                allowed = torch.zeros(wanted.numel(), dtype=torch.float64, device=self.device)
            else:
                allowed = related.after.allowed[name] + slack[name]
            flat = wanted.reshape(-1)
            allowed = torch.where(flat.isnan(), math.inf, allowed)  # the relation says nothing of these
            flat = torch.nan_to_num(flat, nan=0.0, posinf=math.inf, neginf=-math.inf)
            judgement = judge(found, flat, allowed)
            if judgement.mismatches:
                there = (t.cpu().numpy() for t in (found, flat, allowed))
                return self._broken(related, name, judgement, *there)
        return None

    def _moved_by(self, related: Related) -> dict[str, torch.Tensor]:
        """What the errors that `before` may have come to in what the relation expects."""
        case = related.before
        changed: dict[str, torch.Tensor] = {}
        shapes = {t.name: t.sizes(case.dims) for t in self.operator.outputs}
        right = {name: case.expected[name].reshape(shape) for name, shape in shapes.items()}
        centre = _expected(related.relation, right, self.device)
        for sign in (-1, 1):
            off = {name: y + sign * case.allowed[name].reshape(y.shape) for name, y in right.items()}
            for name, y in _expected(related.relation, off, self.device).items():
                moved, middle = y.reshape(-1).double(), centre[name].reshape(-1).double()
                distance = torch.where(moved == middle, 0.0, (moved - middle).abs())
                distance = torch.where(distance.isnan(), math.inf, distance)
                changed[name] = torch.maximum(changed.get(name, distance), distance)
        return changed

    def _region(self, sizes: Mapping[str, int], *, at_end: bool) -> CudaRegion:
        return CudaRegion(self.pool, sizes, at_end=at_end, readonly=True)

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


def _expected(relation: Relation, found: Mapping[str, torch.Tensor], device: torch.device) -> dict[str, torch.Tensor]:
    """What a relation makes of outputs on the GPU, though its permutations and masks lie on the CPU."""
    with _Together(device):
        return {name: torch.as_tensor(y) for name, y in relation.expected(found).items()}


class _Together(TorchFunctionMode):
    """Tensors on the CPU that meet some on the GPU are copied there."""

    def __init__(self, device: torch.device) -> None:
        super().__init__()
        self._device = device

    def __torch_function__(
        self, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        values = (*args, *(kwargs or {}).values())
        if any(isinstance(value, torch.Tensor) and value.device == self._device for value in values):
            return function(*map(self._here, args), **{name: self._here(v) for name, v in (kwargs or {}).items()})
        return function(*args, **(kwargs or {}))

    def _here(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor) and value.device.type == "cpu" and value.ndim:
            return value.to(self._device)
        return value
