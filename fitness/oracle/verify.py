"""The numerical oracle: what the right answer is, how far from it a kernel may be, and how far it was.

Two gates, both against an fp64 reference on the inputs as rounded. Every element has an error bound from rounding-error
analysis; and the root mean square of the errors, relative to those bounds, may not be much larger than that of trusted
implementations on the same inputs. The second finds what the first must let pass, above all products in a lower
precision, whose errors are small beside the bound of a long sum. As chance has a part in how much trusted ones err, it
is drawn again, on inputs that differ by little, before a kernel fails by it alone (`Oracle._second_look`).

`fitness.oracle.answers` computes answers and gates, `fitness.oracle.verify` judges relations, a
`fitness.oracle.places.Place` says where.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import cycle
from typing import Any

import numpy as np
import torch

from fitness.evaluation import CheckError
from fitness.oracle.answers import WORDS, Answers, Expectation, Undefined
from fitness.oracle.bounds import Judgement, judge, place_of
from fitness.oracle.cases import NAIVE, Case, Question, Related, Trusted
from fitness.oracle.inputs import (
    FEW,
    SPECIALS,
    TORCH_DTYPES,
    Inputs,
    carriers,
    data_dims,
    departures,
    draw,
    families,
    overwhelming,
    patterned,
    sample,
)
from fitness.oracle.places import CpuPlace, Place
from fitness.sandbox.memory import Memory
from fitness.words import digits, of_bound
from operators.catalog import Functions
from operators.definition.spec import Operator, Tensor, Workload
from operators.drawing import NOMINAL
from operators.dtypes import DTYPES, DType
from operators.errors import OperatorError
from operators.relations import Relation

UNDEFINED_DRAWS = 3
"""Draws from the distributions alone, where one of another family has no finite answer."""
SECOND_DRAWS = 8
"""Inputs on which the rms of trusted implementations is looked at again before a kernel fails by it."""
NEARBY = (2.0**-7, 2.0**-5)
"""Share of their size by which these are smaller than the first, all elements of a tensor alike: every rounding is
another one, while ties, order and zeros stay."""


class Oracle:
    """Makes cases for one operator and dtype, and judges outputs against them, in the place that it is given."""

    def __init__(self, operator: Operator, functions: Functions, dtype: str, place: Place | None = None) -> None:
        self.operator = operator
        self.functions = functions
        self.dtype = dtype
        self._place = place or CpuPlace()
        self._answers = Answers(operator, functions, dtype, self._place)
        self._relating = Relating(operator, self._answers, self._place)
        self.families = families(functions)
        """Names that `family` may have."""
        turns = {SPECIALS: overwhelming(operator, dtype), FEW: carriers(operator, dtype)}
        self.deals = (*self.families, *(family for family, forms in turns.items() for _ in forms[1:]))
        """Pairs that a stage deals out to its cases: these two once for each of the forms that they take in turn."""
        order = np.random.default_rng()
        self._turns = {
            f: cycle([forms[i] for i in order.permutation(len(forms))] or [None]) for f, forms in turns.items()
        }
        self._inputs = {t.name: t for t in operator.inputs}
        self._outputs = {t.name: t for t in operator.outputs}
        self._scalars = {s.name: s.value for s in operator.scalars}

    @property
    def device(self) -> torch.device:
        """Where inputs are drawn and answers computed."""
        return self._place.device

    def element(self, tensor: Tensor) -> DType:
        """The type of a tensor's elements in this task."""
        return self._answers.element(tensor)

    # --- cases ------------------------------------------------------------------------------------------------------

    def case(
        self,
        workload: Workload,
        family: str,
        rng: np.random.Generator,
        *,
        at_end: bool,
        trusted: Trusted | None = None,
    ) -> Case:
        """Draw inputs, compute the fp64 reference on the values as rounded to the task's dtype, and both gates.

        `trusted` should run the naive kernel. Without it there is no telling what a plain sum costs on these inputs: an
        estimate stands in, and the second gate finds less.
        """

        def answered(family: str) -> Case:
            return self._answered(self.question(workload, family, rng, at_end=at_end), trusted)

        return self._defined(answered, family)

    def _defined(self, answered: Callable[[str], Case], family: str) -> Case:
        """The case of a family; where a partial operator has no finite answer to its draw, one of its distributions."""
        for other in (NOMINAL,) * UNDEFINED_DRAWS if self.operator.partial else ():
            try:
                return answered(family)
            except Undefined:
                family = other
        return answered(family)

    def question(self, workload: Workload, family: str, rng: np.random.Generator, *, at_end: bool) -> Question:
        """Inputs without an answer."""
        return self._question(workload, family, self._drawn(workload, family, rng), at_end=at_end)

    def renewed(self, case: Case, rng: np.random.Generator, *, trusted: Trusted | None = None) -> Case:
        """Draw other inputs of a case's family in its place, and answer them by the reference alone.

        What trusted implementations were asked on the case's own inputs, how much sums and all errors together may be
        off, holds for another draw of the same size too; a kernel that fails by the rms alone gets a second look, as
        ever. Where only the data tells a dim, and it differs, the inputs come to lie elsewhere. `case` must not be used
        afterwards.
        """

        def answered(family: str) -> Case:
            inputs = self._drawn(case.workload, family, rng)
            region = case.region if inputs.dims == case.dims else None
            question = self._question(case.workload, case.family, inputs, at_end=case.at_end, region=region)
            return self._answered(question, trusted, like=case)

        return self._defined(answered, case.family)

    def _drawn(self, workload: Workload, family: str, rng: np.random.Generator) -> Inputs:
        with self._place.together():  # what reference.py draws may lie on the CPU
            return draw(
                self.operator,
                self.functions,
                dims=workload.dims,
                dtype=self.dtype,
                family=family,
                rng=rng,
                device=self.device,
                kind=next(self._turns[SPECIALS]) if family == SPECIALS else None,
                carrier=next(self._turns[FEW]) if family == FEW else None,
            )

    def _question(
        self, workload: Workload, family: str, inputs: Inputs, *, at_end: bool, region: Memory | None = None
    ) -> Question:
        """The inputs in a region that has room for them, or in a new one."""
        sizes = {
            t.name: self.element(t).size * math.prod(t.sizes(inputs.dims))
            for t in self.operator.tensors
            if t.role == "in"
        }
        region = region or self._place.region(sizes, at_end=at_end)
        for name in sizes:
            self._place.write(region, name, inputs.tensors[name])
        return Question(workload, family, inputs, region, at_end)

    def work_sizes(self, dims: Mapping[str, int]) -> dict[str, int]:
        """Bytes of every out and inout tensor."""
        return {t.name: self.element(t).size * math.prod(t.sizes(dims)) for t in self.operator.outputs}

    def restore(self, question: Question, work: Memory) -> None:
        """Put the inout tensors' initial values in place."""
        for tensor in self.operator.outputs:
            if tensor.role == "inout":
                self._place.write(work, tensor.name, question.inputs.tensors[tensor.name])

    def probe(self, case: Case, rng: np.random.Generator, *, trusted: Trusted | None = None) -> Case:
        """Change a few elements of an input in place, as many as it takes to move a result, and answer anew.

        The region is the same, at the same addresses, so that a kernel that keeps what it computed for them is wrong.
        `case` must not be used afterwards.
        """
        for tensor in rng.permutation(np.array([t.name for t in self.operator.inputs if self._may_change(t)])):
            for count in (1, 8, 64, 512) if case.inputs.tensors[tensor].numel() else ():
                before = case
                try:
                    case = self._moved(case, self._inputs[tensor], count, rng, trusted)
                except Undefined:
                    if not self.operator.partial or self._inputs[tensor].role != "in":
                        raise
                    self._place.write(case.region, tensor, case.inputs.tensors[tensor])
                    continue
                if any(_differ(before.expected[n], case.expected[n], case.allowed[n]) for n in case.expected):
                    return case
        return case

    def _may_change(self, tensor: Tensor) -> bool:
        """Indices that `inputs()` made may depend on each other."""
        return tensor.distribution is not None or self.element(tensor).is_float

    def _changed(self, case: Case, tensor: Tensor, count: int, rng: np.random.Generator) -> torch.Tensor:
        """New values in some places: drawn anew, or an extreme of what is there where nothing says how to draw them."""
        values = case.inputs.tensors[tensor.name]
        places = torch.from_numpy(rng.integers(values.numel(), size=count))
        result = values.clone().reshape(-1)
        if tensor.distribution is not None:
            element, env = self.element(tensor), case.dims
            result[places] = sample(tensor, element, (count,), NOMINAL, rng, device=values.device, env=env)
        else:
            result[places] = result.max() if rng.integers(2) else result.min()
        return patterned(result.reshape(values.shape), tensor.pattern)

    def _moved(self, case: Case, tensor: Tensor, count: int, rng: np.random.Generator, trusted: Trusted | None) -> Case:
        values = self._changed(case, tensor, count, rng)
        if tensor.role == "in":
            self._place.write(case.region, tensor.name, values)
        else:  # the run of the case takes the initial values of inout tensors from it
            values = case.inputs.tensors[tensor.name].copy_(values)
        inputs = Inputs({**case.inputs.tensors, tensor.name: values}, case.dims)
        return self._answered(Question(case.workload, case.family, inputs, case.region, case.at_end), trusted)

    # --- judgement --------------------------------------------------------------------------------------------------

    def errors(self, case: Case, work: Memory) -> Iterator[CheckError]:
        """The distance of each output in `work` from the answer."""
        for tensor in self.operator.outputs:
            y = self.held(self._compared(work, tensor), tensor.name, case)
            found = judge(y, case.expected[tensor.name], case.allowed[tensor.name])
            yield CheckError(
                case.workload.name,
                tensor.name,
                case.family,
                found.max_ratio,
                found.mismatches,
                found.first_bad,
                case.quotient(tensor.name, found),
            )

    def within(self, case: Case, work: Memory) -> bool:
        """Whether each element in `work` is within its bound, whatever all errors together are."""
        return not any(
            judge(
                self.held(self._compared(work, tensor), tensor.name, case),
                case.expected[tensor.name],
                case.allowed[tensor.name],
            ).mismatches
            for tensor in self.operator.outputs
        )

    def describe(self, error: CheckError, case: Case, work: Memory) -> str:
        """A wrong output in words: which gate it failed, where, what was found, what was expected."""
        tensor = self._outputs[error.tensor]
        shape = tensor.sizes(case.dims)
        where = f"wrong result on {case.workload.name} ({case.family} inputs)"
        if error.first_bad is None:
            limit = case.rms_limit[tensor.name]
            return (
                f"{where}: no element of `{tensor.name}` is out of bounds (the worst at {of_bound(error.max_ratio)}), "
                f"but all errors together are {digits(error.rms_ratio)} times larger than rounding to "
                f"{self.element(tensor).name} explains: their rms is {error.rms_ratio * limit:.2g} of the bounds, "
                f"{limit:.2g} is allowed; is something computed or kept in a lower precision?"
            )
        if self._answers.bits:
            return f"{where}: {self._other_bits(error, case, work)}"
        index = place_of(error.first_bad, shape)
        found = float(self._read(work, tensor)[error.first_bad])
        wanted = float(case.expected[tensor.name][error.first_bad])
        allowed = float(case.allowed[tensor.name][error.first_bad])
        return (
            f"{where}: {error.mismatches} of {math.prod(shape)} elements of `{tensor.name}` are out of bounds, the "
            f"first at {index}: {found:.9g}, expected {wanted:.9g} within {allowed:.2g}; the worst is "
            f"{digits(error.max_ratio)} times its bound off{self._doubt(tensor.name, case)}"
        )

    def _other_bits(self, error: CheckError, case: Case, work: Memory) -> str:
        """The difference of outputs where nothing but bits is moved; of elements wider than 32 bits the half that
        does."""
        tensor = self._outputs[error.tensor]
        assert error.first_bad is not None
        halves = max(self.element(tensor).size // 4, 1)
        bits = 8 * min(self.element(tensor).size, 4)
        found, wanted = (
            int(values[error.first_bad]) % 2**bits
            for values in (self._compared(work, tensor), case.expected[tensor.name])
        )
        index = place_of(error.first_bad // halves, tensor.sizes(case.dims))
        return (
            f"elements of `{tensor.name}` must be equal bit by bit, signs of zeros and NaN payloads too; the first "
            f"that is not is {index}: {found:0{bits // 4}x}, expected {wanted:0{bits // 4}x}"
        )

    def _doubt(self, output: str, case: Case) -> str:
        """Advice on the operator where other implementations do no better."""
        if output not in case.out_of_bounds:
            return ""
        hints = advice(self.operator, self.dtype, case.family, has_magnitude=self.functions.offers("magnitude"))
        who = case.out_of_bounds[output]
        so = "if it is right, the operator asks" if who == NAIVE else "the operator seems to ask"
        return f". {who} is out of bounds here as well; {so} too much" + (f": {hints}" if hints else "")

    def outputs(self, question: Question, work: Memory) -> dict[str, torch.Tensor]:
        """A copy of what `work` holds, in fp64 and in shape: what `related_problem` compares and `Trusted` returns."""
        return {
            t.name: torch.as_tensor(self._read(work, t)).to(torch.float64, copy=True).reshape(t.sizes(question.dims))
            for t in self.operator.outputs
        }

    def _read(self, work: Memory, tensor: Tensor) -> Any:
        return self._place.read(work, tensor.name, TORCH_DTYPES[self.element(tensor).name])

    def _compared(self, work: Memory, tensor: Tensor) -> Any:
        """The argument of `judge`: values, or their bits as `fitness.oracle.answers.words` has them."""
        if not self._answers.bits:
            return self._read(work, tensor)
        return self._place.read(work, tensor.name, WORDS[self.element(tensor).size])

    def held(self, y: Any, output: str, case: Case) -> Any:
        """An output as it is held against its answer.

        Where products may be made of numbers in parts, NaN stands for an infinity: less its first part, none is left.
        """
        if case.family != SPECIALS or not self._answers.in_parts(self._outputs[output]):
            return y
        found, expected = torch.as_tensor(y), torch.as_tensor(case.expected[output])
        spoilt = found.isnan() & expected.isinf()
        return torch.where(spoilt, expected, found.double()).contiguous()

    # --- relations --------------------------------------------------------------------------------------------------

    def relations(self, case: Case, rng: np.random.Generator, *, trusted: Trusted | None = None) -> Iterator[Related]:
        """The operator's relations on a case. Raises OperatorError where reference.py makes something unusable.

        The caller runs `after` too (unless it is `before`), from memory that lies in the same way, lets `errors` judge
        it like any other case, and hands the `outputs` of both runs to `related_problem`.
        """
        values: dict[str, Any] = {n: t.clone() for n, t in case.inputs.tensors.items()}
        extra = {"rng": rng, "dtype": DTYPES[self.dtype]}
        with self._place.together():
            found = self.functions.relations({**case.dims, **self._scalars, **values, **extra})
        for relation in found:
            if not isinstance(relation, Relation):
                raise OperatorError(f"{self._file}: relations() made a {type(relation).__name__}, not Relations")
            yield Related(relation, case, self._after(relation, case, trusted))

    def _after(self, relation: Relation, case: Case, trusted: Trusted | None) -> Case:
        if not relation.inputs:
            return case
        for name, value in relation.inputs.items():
            drawn = case.inputs.tensors.get(name)
            if drawn is None or value.dtype != drawn.dtype or value.shape != drawn.shape:
                raise OperatorError(
                    f"{self._file}: relations(): `{relation.name}` changes `{name}` to {value.dtype} "
                    f"{list(value.shape)}, which is not what it was"
                )
        changed = {n: t.to(self.device).contiguous() for n, t in relation.inputs.items()}
        tensors = {**case.inputs.tensors, **changed}
        dims = dict(case.dims)
        if self.operator.data_dims:
            dims |= data_dims(self.functions, {**dims, **{n: t.cpu() for n, t in tensors.items()}})
        inputs = Inputs({n: t.to(self.device) for n, t in tensors.items()}, dims)
        return self._answered(self._question(case.workload, case.family, inputs, at_end=case.at_end), trusted)

    def related_problem(
        self,
        related: Related,
        before: Mapping[str, torch.Tensor],
        after: Mapping[str, torch.Tensor],
        *,
        deterministic: bool = True,
    ) -> str | None:
        """See `Relating.problem`."""
        return self._relating.problem(related, before, after, deterministic=deterministic)

    @property
    def _file(self) -> str:
        return str(self.functions.module.__file__)

    # --- answers ----------------------------------------------------------------------------------------------------

    def _answered(self, question: Question, trusted: Trusted | None, *, like: Case | None = None) -> Case:
        a = self._answers.answer(question, trusted, like=like)
        again = None if self._answers.bits else lambda: self._second_look(question, a, trusted)
        return Case(
            question.workload,
            question.family,
            question.inputs,
            question.region,
            question.at_end,
            a.expected,
            a.allowed,
            a.rms_limit,
            a.out_of_bounds,
            a.roundoffs,
            again,
        )

    def _second_look(self, question: Question, answer: Expectation, trusted: Trusted | None) -> dict[str, float]:
        """The largest errors together, luck of the first draw left aside, by output.

        As large as trusted implementations allow on any of some inputs that differ from the question's by little, and
        as what rounding every input once more would cost.
        """
        rng = np.random.default_rng()
        looks = [answer.rms_limit, self._answers.backward_limit(question, answer, rng)]
        for _ in range(SECOND_DRAWS):
            inputs = Inputs({n: _smaller(t, rng) for n, t in question.inputs.tensors.items()}, question.dims)
            near = self._question(question.workload, question.family, inputs, at_end=question.at_end)
            looks.append(self._answers.answer(near, trusted, one_of_many=True).rms_limit)
        return {name: max(look.get(name, 0.0) for look in looks) for name in answer.rms_limit}


def worst(errors: Sequence[CheckError]) -> tuple[CheckError, ...]:
    """The worst of many checks for each workload, tensor and family."""
    found: dict[tuple[str, str, str], CheckError] = {}
    for error in errors:
        key = (error.workload, error.tensor, error.family)
        if key not in found or error.worst_ratio > found[key].worst_ratio:
            found[key] = error
    return tuple(found.values())


def _differ(before: Any, after: Any, allowed: Any) -> bool:
    """Whether some result moved by more than rounding can explain."""
    return judge(before, after, allowed).max_ratio > 8


def _smaller(values: torch.Tensor, rng: np.random.Generator) -> torch.Tensor:
    if not values.is_floating_point():
        return values
    return (values.double() * (1 - rng.uniform(*NEARBY))).to(values.dtype)


def advice(operator: Operator, dtype: str, family: str, *, has_magnitude: bool) -> str:
    """Words on how the bound and the inputs of a family came about, and which keys and functions change them; may be
    empty."""
    said = [*_of_bound(operator, has_magnitude=has_magnitude), *departures(operator, dtype, family)]
    return "; ".join(said)


def _of_bound(operator: Operator, *, has_magnitude: bool) -> Iterator[str]:
    if not has_magnitude and operator.tolerance.bound not in ("bits", "exact"):
        yield (
            "reference.py has no magnitude(...), so that S of the bound is |y|: return the size of the sums inside, "
            "where it is more than what they come to"
        )


# --- relations --------------------------------------------------------------------------------------------------------


Tensors = Mapping[str, torch.Tensor]


class Relating:
    """Judges the relations of one operator and dtype."""

    def __init__(self, operator: Operator, answers: Answers, place: Place) -> None:
        self._outputs = {t.name: t for t in operator.outputs}
        self._bits = operator.tolerance.bound == "bits"
        self._answers = answers
        self._place = place

    def problem(self, related: Related, before: Tensors, after: Tensors, *, deterministic: bool) -> str | None:
        """The fault in the outputs of two runs, in words; None where they keep the relation.

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
        """The outputs that a relation promises, though its permutations and masks lie on the CPU."""
        with self._place.together():
            return {name: torch.as_tensor(y) for name, y in related.relation.expected(found).items()}

    def _slack(self, related: Related) -> dict[str, torch.Tensor]:
        """The errors that those of `before` may have become in what the relation expects."""
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
