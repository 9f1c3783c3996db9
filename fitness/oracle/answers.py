"""Right answers: the fp64 reference on inputs as rounded, what trusted implementations make of them, and both gates."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from fitness.oracle.bounds import (
    ErrorBound,
    Precision,
    analysed,
    backward_limit,
    demand_exact,
    element_bound,
    judge,
    measured,
    naively,
    rms_limit,
)
from fitness.oracle.cases import NAIVE, Case, Question, Trusted
from fitness.oracle.inputs import FEW, TORCH_DTYPES, Inputs, departures
from fitness.oracle.places import Place
from operators.catalog import Functions
from operators.definition.spec import Operator, Tensor
from operators.dtypes import ACCUMULATOR, DTYPES, DType, resolve_dtype
from operators.errors import OperatorError

WORDS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int32}
"""By the bytes of an element, as what its bits are compared: nothing that fp64 does not hold."""
PERTURBATION = {"fp64": 2.0**10}
"""Number of roundoffs, of which one is meant, that show beside the reference's own, by accumulator; else one."""


class Undefined(OperatorError):
    """A reference has no finite result for inputs that were drawn."""


@dataclass
class Expectation:
    """Expected outputs of one question: flat and fp64, as `fitness.oracle.cases.Case` has them."""

    expected: dict[str, Any] = field(default_factory=dict)
    allowed: dict[str, Any] = field(default_factory=dict)
    rms_limit: dict[str, float] = field(default_factory=dict)
    out_of_bounds: dict[str, str] = field(default_factory=dict)
    roundoffs: dict[str, float] = field(default_factory=dict)


class Answers:
    """Makes the answers of one operator and dtype, wherever `place` computes."""

    def __init__(self, operator: Operator, functions: Functions, dtype: str, place: Place) -> None:
        self._operator = operator
        self._functions = functions
        self._dtype = dtype
        self._place = place
        self._accumulator = DTYPES[ACCUMULATOR[dtype]]
        self._scalars = {s.name: s.value for s in operator.scalars}
        # Where a task runs on a target, its library call does so too.
        self._library = functions.offers("library") and dtype in operator.dtypes.get(place.target, ())
        self.bits = operator.tolerance.bound == "bits"
        """Whether outputs are compared bit by bit, as `words`."""

    def element(self, tensor: Tensor) -> DType:
        """The type of a tensor's elements in this task."""
        return resolve_dtype(tensor.dtype, self._dtype)

    def answer(
        self, question: Question, trusted: Trusted | None, *, one_of_many: bool = False, like: Case | None = None
    ) -> Expectation:
        """It computes the reference, the bounds of every element and the limits of all errors together.

        See `fitness.oracle.bounds.rms_limit` for `one_of_many`. What trusted implementations would be asked is taken
        from `like`, another draw of the same inputs, where there is one.
        """
        if self.bits:
            return self._place.computed(lambda: self._moved_bits(question))
        return self._place.computed(lambda: self._answer(question, trusted, one_of_many=one_of_many, like=like))

    def _answer(
        self, question: Question, trusted: Trusted | None, *, one_of_many: bool, like: Case | None
    ) -> Expectation:
        # Copies: a reference that works in place must not change what the kernel is given.
        values = self._values(question.inputs, torch.float64)
        right = self._functions.reference(values)
        self._check("reference", right, question)
        magnitude = self._functions.magnitude(values | {"outputs": right, "dtype": DTYPES[self._dtype]})
        self._check("magnitude", magnitude or {}, question)
        asked = like is None and self._operator.tolerance.bound != "exact"
        others = [*self._opinions(question, trusted)] if asked else []
        answer = Expectation()
        for tensor in self._operator.outputs:
            name = tensor.name
            if self._operator.tolerance.bound == "exact" or not self.element(tensor).is_float:
                rounded = right[name].to(TORCH_DTYPES[self.element(tensor).name]).double()
                answer.expected[name] = self._place.flat(rounded)
                answer.allowed[name] = self._place.flat(self._turned(tensor, question, magnitude, rounded))
                answer.rms_limit[name] = math.inf
                continue
            y64, opinions = self._place.flat(right[name]), [(who, other[name]) for who, other in others]
            s = y64 if magnitude is None else self._place.flat(magnitude[name])
            answer.roundoffs[name] = (
                like.roundoffs[name] if like else self._roundoffs(tensor, question, y64, s, opinions)
            )
            limits = self._limits(tensor, question, y64, s, answer.roundoffs[name])
            if self._integral(question, magnitude is not None):
                demand_exact(self.precision(tensor), limits, y64, s, family=question.family)
            judged = [judge(y, y64, limits.allowed) for _, y in opinions]
            if missed := [who for (who, _), verdict in zip(opinions, judged, strict=True) if verdict.mismatches]:
                answer.out_of_bounds[name] = missed[0]
            answer.expected[name], answer.allowed[name] = y64, limits.allowed
            if like:
                answer.rms_limit[name] = like.rms_limit[name]
                continue
            answer.rms_limit[name] = rms_limit(
                self.precision(tensor),
                limits,
                judged,
                family=question.family,
                naive=trusted is not None,
                one_of_many=one_of_many,
            )
        return answer

    def _turned(self, tensor: Tensor, question: Question, magnitude: Mapping[str, Any] | None, y: Any) -> torch.Tensor:
        """The distance that each integer may be off: whole steps, where rounding errors may turn it over."""
        errors = (magnitude or {}).get(tensor.name)
        if errors is None or self._operator.tolerance.bound == "exact" or self.element(tensor).is_float:
            return torch.zeros_like(y)
        growth = analysed(self.precision(tensor), self._terms(question), "nominal")
        return torch.where(errors > 0, (growth * self._accumulator.unit_roundoff * errors).round().clamp(min=1), 0.0)

    def precision(self, tensor: Tensor) -> Precision:
        """The types that decide on the bounds of an output."""
        return Precision(self.element(tensor), self._accumulator, DTYPES[self._dtype])

    def in_parts(self, tensor: Tensor) -> bool:
        """Whether what an output sums may be products of fp32 that are made of numbers in parts."""
        tolerance = self._operator.tolerance
        return tolerance.bound == "rounding" and bool(tolerance.terms.names) and self.precision(tensor).in_parts

    def backward_limit(self, question: Question, answer: Expectation, rng: np.random.Generator) -> dict[str, float]:
        """By output, the rms limit of a kernel whose errors are as if every input had been rounded once more.

        No algorithm can be asked for less (Higham, "Accuracy and Stability of Numerical Algorithms", section 1.5),
        however little trusted ones came to err on these inputs. It is computed from the reference, on inputs that are
        moved by one roundoff of the accumulator up or down.
        """
        steps = PERTURBATION.get(self._accumulator.name, 1.0)
        moved = self._place.computed(lambda: self._functions.reference(self._stepped(question.inputs, steps, rng)))
        found: dict[str, float] = {}
        for tensor in self._operator.outputs:
            name = tensor.name
            if math.isfinite(answer.rms_limit[name]):
                y64, y = (torch.as_tensor(v) for v in (answer.expected[name], self._place.flat(moved[name])))
                off = torch.where(y64.isfinite() & y.isfinite(), y64 + (y - y64) / steps, y64)
                judged = judge(self._place.flat(off), answer.expected[name], answer.allowed[name])
                found[name] = backward_limit(self.precision(tensor), judged)
        return found

    def _stepped(self, inputs: Inputs, steps: float, rng: np.random.Generator) -> dict[str, Any]:
        """Inputs in fp64, every element so many roundoffs larger or smaller."""
        values = self._values(inputs, torch.float64)
        for name in inputs.tensors:
            if values[name].is_floating_point():
                source = torch.Generator(values[name].device).manual_seed(int(rng.integers(2**63)))
                signs = 2 * torch.empty_like(values[name]).bernoulli_(0.5, generator=source) - 1
                values[name] *= 1 + steps * self._accumulator.unit_roundoff * signs
        return values

    def _moved_bits(self, question: Question) -> Expectation:
        """The answer of an operator that only moves values: its reference moves integers, which nothing rounds.

        Each output is told as integers of at most 32 bits, which fp64 holds, as `words` says.
        """
        placed = self._place.placed(question.inputs).items()
        values = {name: words(t, whole=True).clone() for name, t in placed}
        right = self._functions.reference({**question.inputs.dims, **self._scalars, **values})
        answer = Expectation()
        for tensor in self._operator.outputs:
            value, shape = right.get(tensor.name), tensor.sizes(question.dims)
            if not isinstance(value, torch.Tensor) or tuple(value.shape) != shape or value.is_floating_point():
                found = (
                    f"{value.dtype} {list(value.shape)}" if isinstance(value, torch.Tensor) else type(value).__name__
                )
                raise OperatorError(
                    f"{self._file}: reference() made `{tensor.name}` of integers as {found}, it must be integers "
                    f'{list(shape)}: with bound = "bits" it only moves values, of any type'
                )
            answer.expected[tensor.name] = self._place.flat(words(value))
            answer.allowed[tensor.name] = self._place.flat(torch.zeros_like(words(value)))
            answer.rms_limit[tensor.name] = math.inf
        return answer

    # --- trusted implementations ------------------------------------------------------------------------------------

    def _opinions(self, question: Question, trusted: Trusted | None) -> Iterator[tuple[str, dict[str, Any]]]:
        """Outputs of trusted implementations, as rounded, with what each is called in a message."""
        yield from self._second_opinions(question.inputs)
        for outputs in trusted(question) if trusted is not None else ():
            yield NAIVE, {n: self._place.flat(torch.as_tensor(y)) for n, y in outputs.items()}

    def _values(self, inputs: Inputs, dtype: torch.dtype) -> dict[str, Any]:
        """The arguments of functions of reference.py: copies, floating tensors in a type of our choice."""
        placed = self._place.placed(inputs).items()
        tensors = {n: t.to(dtype if t.is_floating_point() else t.dtype, copy=True) for n, t in placed}
        return {**inputs.dims, **self._scalars, **tensors}

    def _second_opinions(self, inputs: Inputs) -> Iterator[tuple[str, dict[str, Any]]]:
        """Outputs of the library in the task's own type and of the reference in the accumulator's, as rounded."""
        if self._library:
            values: dict[str, Any] = {n: t.clone() for n, t in self._place.placed(inputs).items()}
            values = {**inputs.dims, **self._scalars, **values}
            result = self._functions.library(values | {"prepared": self._functions.prepare(values)})
            yield "The library", self._rounded("library", result, inputs.dims)
        if self._accumulator.name != "fp64":
            values = self._values(inputs, TORCH_DTYPES[self._accumulator.name])
            try:
                result = self._functions.reference(values)
            except OperatorError:
                return  # one that insists on fp64 has no second opinion to offer
            yield f"The reference in {self._accumulator.name}", self._rounded("reference", result, inputs.dims)

    def _rounded(self, function: str, result: Any, dims: Mapping[str, int]) -> dict[str, Any]:
        by_name = result if isinstance(result, Mapping) else {self._operator.outputs[0].name: result}
        rounded = {}
        for tensor in self._operator.outputs:
            value = by_name.get(tensor.name)
            if not isinstance(value, torch.Tensor) or tuple(value.shape) != tensor.sizes(dims):
                found = list(value.shape) if isinstance(value, torch.Tensor) else _kind(value)
                raise OperatorError(
                    f"{self._file}: {function}() made `{tensor.name}` as {found}, it must be a tensor "
                    f"{list(tensor.sizes(dims))}"
                )
            rounded[tensor.name] = self._place.flat(value.to(TORCH_DTYPES[self.element(tensor).name]).double())
        return rounded

    # --- bounds -----------------------------------------------------------------------------------------------------

    def _terms(self, question: Question) -> int:
        return max(self._operator.tolerance.terms.evaluate(question.dims), 1)

    def _roundoffs(
        self, tensor: Tensor, question: Question, y64: Any, s: Any, found: Sequence[tuple[str, Any]]
    ) -> float:
        """Roundoffs of S that sums of one output may be off, by analysis or by what trusted outputs are off."""
        precision, terms = self.precision(tensor), self._terms(question)
        if self._operator.tolerance.bound == "measured":
            return measured(precision, terms, question.family, y64, s, [y for _, y in found])
        naive = [y for who, y in found if who == NAIVE]
        return naively(precision, terms, analysed(precision, terms, question.family), y64, s, naive)

    def _limits(self, tensor: Tensor, question: Question, y64: Any, s: Any, roundoffs: float) -> ErrorBound:
        """The bound of every element of one output."""
        precision, tolerance, terms = self.precision(tensor), self._operator.tolerance, self._terms(question)
        if tolerance.bound == "measured":
            return element_bound(precision, y64, s, terms=terms, roundoffs=roundoffs)
        sums, on_gpu = self.in_parts(tensor), self._place.target == "cuda"
        found = element_bound(precision, y64, s, terms=terms, roundoffs=roundoffs, sums=sums, tensor_cores=on_gpu)
        if "inf" in tensor.specials:  # whether a mask holds may hang on a rounding
            lost = (abs(y64) == math.inf) & (s > torch.finfo(torch.float32).max)
            y64[lost], found.allowed[lost] = 0.0, math.inf
        return found

    def _integral(self, question: Question, has_magnitude: bool) -> bool:
        """Whether results are exact: a linear operator on integers."""
        if question.family not in ("integers", FEW) or not self._operator.tolerance.exact_integers:
            return False
        if not has_magnitude:
            raise OperatorError(f"{self._file}: `def magnitude(...)` is missing; exact_integers needs the size of sums")
        floating = (t for t in question.inputs.tensors.values() if t.is_floating_point())
        return all(bool((t == t.round()).all()) for t in floating)

    # --- what reference.py returns ----------------------------------------------------------------------------------

    @property
    def _file(self) -> str:
        return str(self._functions.module.__file__)

    def _check(self, function: str, answer: Mapping[str, Any], question: Question) -> None:
        """Refuse what would be broadcast, or rounded, in silence. Raises OperatorError."""
        for tensor in (t for t in self._operator.outputs if t.name in answer):
            value, shape = answer[tensor.name], tensor.sizes(question.dims)
            wide = self.element(tensor).is_float or function == "magnitude"
            right = isinstance(value, torch.Tensor) and tuple(value.shape) == shape
            if right and (value.dtype == torch.float64 if wide else not value.is_complex()):
                self._check_finite(function, tensor, value, question)
                continue
            raise OperatorError(
                f"{self._file}: {function}() made `{tensor.name}` as {_kind(value)}, "
                f"it must be {'torch.float64' if wide else 'a tensor of integers'} {list(shape)}"
            )

    def _check_finite(self, function: str, tensor: Tensor, value: torch.Tensor, question: Question) -> None:
        """Only an operator that declares what can be infinite or no number may answer so, and only to such inputs; a
        result that is declared infinite may be so always."""
        finite = bool(value.isfinite().all()) or (question.family == "specials" and self._declares_infinities)
        finite |= function == "reference" and "inf" in tensor.specials and not bool(value.isnan().any())
        positive = function == "reference" or not bool((value < 0).any())
        if not (finite and positive):
            problem = "not finite" if function == "reference" else "negative or not finite"
            hints = "".join(f"; {hint}" for hint in departures(self._operator, self._dtype, question.family))
            raise (Undefined if function == "reference" else OperatorError)(
                f"{self._file}: {function}() made values of `{tensor.name}` that are {problem}, on "
                f"{question.workload.name} ({question.family} inputs){hints}"
            )

    @property
    def _declares_infinities(self) -> bool:
        return any({"inf", "nan", "huge"} & {*t.specials} for t in self._operator.inputs)


def _kind(value: object) -> str:
    return f"{value.dtype} {list(value.shape)}" if isinstance(value, torch.Tensor) else type(value).__name__


def words(value: torch.Tensor, *, whole: bool = False) -> torch.Tensor:
    """The bits of a tensor as integers: an integer for each element if `whole`, else flat, of at most 32 bits each."""
    if whole:
        return value.view(torch.int64 if value.element_size() == 8 else WORDS[value.element_size()])
    flat = torch.as_strided(value.contiguous(), (value.numel(),), (1,))  # of any stride along an axis of length 1
    return flat.view(WORDS[value.element_size()])
