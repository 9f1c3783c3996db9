"""Whether two outputs of a kernel keep a relation of its operator: in torch, wherever the outputs lie."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch

from fitness.oracle.answers import Answers
from fitness.oracle.cases import Case, Related
from fitness.oracle.compare import Judgement, judge, place_of
from fitness.oracle.inputs import TORCH_DTYPES
from fitness.oracle.places import Place
from operators.definition.spec import Operator, Tensor

Tensors = Mapping[str, torch.Tensor]


class Relating:
    """Judges the relations of one operator and dtype."""

    def __init__(self, operator: Operator, answers: Answers, place: Place) -> None:
        self._outputs = {t.name: t for t in operator.outputs}
        self._bits = operator.tolerance.bound == "bits"
        self._answers = answers
        self._place = place

    def problem(self, related: Related, before: Tensors, after: Tensors, *, deterministic: bool) -> str | None:
        """What is wrong with the outputs of two runs, in words; None where they keep the relation.

        Outputs are in fp64 and in shape. A kernel that is not deterministic is held to the bounds, also where a
        relation is exact; one that only moves bits is exact in any case.
        """
        expected = self._expected(related, before)
        exact = self._bits or (related.relation.exact and deterministic)
        slack = {} if exact else self._slack(related)
        for name, wanted in expected.items():
            found = after[name].reshape(-1)
            if exact:
                wanted = wanted.to(TORCH_DTYPES[self._answers.element(self._outputs[name]).name]).double()
                allowed = torch.zeros_like(found)
            else:
                allowed = torch.as_tensor(related.after.allowed[name]) + slack[name]
            flat = wanted.reshape(-1).double()
            allowed = torch.where(flat.isnan(), math.inf, allowed)  # the relation says nothing of these
            flat = torch.nan_to_num(flat, nan=0.0, posinf=math.inf, neginf=-math.inf).contiguous()
            judgement = judge(found.contiguous(), flat, allowed)
            if judgement.mismatches:
                return _broken(related, self._outputs[name], judgement, found, flat, allowed)
        return None

    def _expected(self, related: Related, found: Tensors) -> dict[str, torch.Tensor]:
        """What a relation makes of outputs, though its permutations and masks lie on the CPU."""
        with self._place.together():
            return {name: torch.as_tensor(y) for name, y in related.relation.expected(found).items()}

    def _slack(self, related: Related) -> dict[str, torch.Tensor]:
        """What the errors that `before` may have come to in what the relation expects."""
        case = related.before
        right, allowed = self._shaped(case, case.expected), self._shaped(case, case.allowed)
        centre = self._expected(related, right)
        changed: dict[str, torch.Tensor] = {}
        for sign in (-1, 1):
            off = {name: y + sign * allowed[name] for name, y in right.items()}
            for name, y in self._expected(related, off).items():
                moved, middle = y.reshape(-1).double(), centre[name].reshape(-1).double()
                distance = torch.where(moved == middle, 0.0, (moved - middle).abs())
                distance = torch.where(distance.isnan(), math.inf, distance)
                changed[name] = torch.maximum(changed.get(name, distance), distance)
        return changed

    def _shaped(self, case: Case, values: Mapping[str, Any]) -> dict[str, torch.Tensor]:
        return {n: torch.as_tensor(values[n]).reshape(t.sizes(case.dims)) for n, t in self._outputs.items()}


def _broken(
    related: Related,
    tensor: Tensor,
    judgement: Judgement,
    found: torch.Tensor,
    wanted: torch.Tensor,
    allowed: torch.Tensor,
) -> str:
    first = judgement.first_bad
    assert first is not None
    index = place_of(first, tensor.sizes(related.after.dims))
    return (
        f"wrong result on {related.after.workload.name} ({related.after.family} inputs): {related.relation.name} "
        f"does not hold for {judgement.mismatches} of {found.numel()} elements of `{tensor.name}`, the first at "
        f"{index}: {float(found[first]):.9g} where its other result asks for {float(wanted[first]):.9g} within "
        f"{float(allowed[first]):.2g}"
    )
