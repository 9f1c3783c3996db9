"""The numerical oracle: what the right answer is, how far from it a kernel may be, and how far it was.

Two gates, both against an fp64 reference on the inputs as rounded. Every element has an error bound from rounding-error
analysis; and the root mean square of the errors, relative to those bounds, may not be much larger than that of trusted
implementations on the same inputs. The second finds what the first must let pass, above all products in a lower
precision, whose errors are small beside the bound of a long sum.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from fitness.bounds import Precision, analysed, demand_exact, element_bound, measured, rms_limit
from fitness.cases import NAIVE, Case, Question, Related, Trusted
from fitness.compare import Bound, Judgement, judge
from fitness.doubts import advice, departures
from fitness.evaluation import CheckError
from fitness.inputs import TORCH_DTYPES, Inputs, data_dims, draw, families, sample
from fitness.memory import Memory, Region
from operators.catalog import Functions
from operators.dtypes import ACCUMULATOR, DTYPES, DType, resolve_dtype
from operators.errors import OperatorError
from operators.relations import Relation
from operators.spec import Operator, Tensor, Workload


class Oracle:
    """Makes cases for one operator and dtype, and judges outputs against them.

    Computes on the CPU; what another place of computation changes are the methods under `where things are`.
    """

    def __init__(self, operator: Operator, functions: Functions, dtype: str) -> None:
        self.operator = operator
        self.functions = functions
        self.dtype = dtype
        self.accumulator = DTYPES[ACCUMULATOR[dtype]]
        self.device = torch.device("cpu")
        """Where inputs are drawn and answers computed."""
        self.families = families(functions)
        """What `family` may be."""
        self._inputs = {t.name: t for t in operator.inputs}
        self._outputs = {t.name: t for t in operator.outputs}
        self._scalars = {s.name: s.value for s in operator.scalars}
        # Where a task runs on the cpu target, its library call does so too.
        self._library = functions.offers("library") and dtype in operator.dtypes.get("cpu", ())

    def element(self, tensor: Tensor) -> DType:
        """The type of a tensor's elements in this task."""
        return resolve_dtype(tensor.dtype, self.dtype)

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
        inputs = draw(
            self.operator,
            self.functions,
            dims=workload.dims,
            dtype=self.dtype,
            family=family,
            rng=rng,
            device=self.device,
        )
        return self._answered(self._question(workload, family, inputs, at_end=at_end), trusted)

    def _question(self, workload: Workload, family: str, inputs: Inputs, *, at_end: bool) -> Question:
        sizes = {
            t.name: self.element(t).size * math.prod(t.sizes(inputs.dims))
            for t in self.operator.tensors
            if t.role == "in"
        }
        region = self._region(sizes, at_end=at_end)
        for name in sizes:
            self._write(region, name, inputs.tensors[name])
        return Question(workload, family, inputs, region, at_end)

    def work_sizes(self, dims: Mapping[str, int]) -> dict[str, int]:
        """Bytes of every out and inout tensor."""
        return {t.name: self.element(t).size * math.prod(t.sizes(dims)) for t in self.operator.outputs}

    def restore(self, question: Question, work: Memory) -> None:
        """Put the inout tensors' initial values in place."""
        for tensor in self.operator.outputs:
            if tensor.role == "inout":
                self._write(work, tensor.name, question.inputs.tensors[tensor.name])

    def probe(self, case: Case, rng: np.random.Generator, *, trusted: Trusted | None = None) -> Case:
        """Change a few elements of an input in place, as many as it takes to move a result, and answer anew.

        The region is the same, at the same addresses, so that a kernel that keeps what it computed for them is wrong.
        `case` must not be used afterwards.
        """
        for tensor in rng.permutation(np.array([t.name for t in self.operator.inputs if self._may_change(t)])):
            for count in (1, 8, 64, 512) if case.inputs.tensors[tensor].numel() else ():
                before = case
                case = self._moved(case, self._inputs[tensor], count, rng, trusted)
                if any(_differ(before.expected[n], case.expected[n], case.allowed[n]) for n in case.expected):
                    return case
        return case

    def _may_change(self, tensor: Tensor) -> bool:
        """Indices that `inputs()` made may depend on each other."""
        return tensor.distribution is not None or self.element(tensor).is_float

    def _changed(self, tensor: Tensor, values: torch.Tensor, count: int, rng: np.random.Generator) -> torch.Tensor:
        """New values in some places: drawn anew, or an extreme of what is there where nothing says how to draw them."""
        places = torch.from_numpy(rng.integers(values.numel(), size=count))
        result = values.clone().reshape(-1)
        if tensor.distribution is not None:
            result[places] = sample(tensor, self.element(tensor), (count,), "nominal", rng, device=values.device)
        else:
            result[places] = result.max() if rng.integers(2) else result.min()
        return result.reshape(values.shape)

    def _moved(self, case: Case, tensor: Tensor, count: int, rng: np.random.Generator, trusted: Trusted | None) -> Case:
        values = self._changed(tensor, case.inputs.tensors[tensor.name], count, rng)
        if tensor.role == "in":
            self._write(case.region, tensor.name, values)
        else:  # the run of the case takes the initial values of inout tensors from it
            values = case.inputs.tensors[tensor.name].copy_(values)
        inputs = Inputs({**case.inputs.tensors, tensor.name: values}, case.dims)
        return self._answered(Question(case.workload, case.family, inputs, case.region, case.at_end), trusted)

    # --- judgement --------------------------------------------------------------------------------------------------

    def errors(self, case: Case, work: Memory) -> Iterator[CheckError]:
        """How far each output in `work` is from the answer."""
        for tensor in self.operator.outputs:
            found = judge(self._read(work, tensor), case.expected[tensor.name], case.allowed[tensor.name])
            yield CheckError(
                case.workload.name,
                tensor.name,
                case.family,
                found.max_ratio,
                found.mismatches,
                found.first_bad,
                _quotient(found.rms_ratio, case.rms_limit[tensor.name]),
            )

    def describe(self, error: CheckError, case: Case, work: Memory) -> str:
        """A wrong output in words: which gate it failed, where, what was found, what was expected."""
        tensor = self._outputs[error.tensor]
        shape = tensor.sizes(case.dims)
        where = f"wrong result on {case.workload.name} ({case.family} inputs)"
        if error.first_bad is None:
            limit = case.rms_limit[tensor.name]
            return (
                f"{where}: no element of `{tensor.name}` is out of bounds (the worst at {error.max_ratio:.2g} of its "
                f"bound), but all errors together are {error.rms_ratio:.3g} times larger than rounding to "
                f"{self.element(tensor).name} explains: their rms is {error.rms_ratio * limit:.2g} of the bounds, "
                f"{limit:.2g} is allowed; is something computed or kept in a lower precision?"
            )
        index = [int(i) for i in np.unravel_index(error.first_bad, shape)] if shape else []
        found = float(self._read(work, tensor)[error.first_bad])
        wanted = float(case.expected[tensor.name][error.first_bad])
        allowed = float(case.allowed[tensor.name][error.first_bad])
        return (
            f"{where}: {error.mismatches} of {math.prod(shape)} elements of `{tensor.name}` are out of bounds, the "
            f"first at {index}: {found:.9g}, expected {wanted:.9g} within {allowed:.2g}; the worst is "
            f"{error.max_ratio:.3g} times its bound off{self._doubt(tensor.name, case)}"
        )

    def _doubt(self, output: str, case: Case) -> str:
        """What to look at in the operator where others do no better."""
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

    # --- where things are -------------------------------------------------------------------------------------------

    def _region(self, sizes: Mapping[str, int], *, at_end: bool) -> Memory:
        """Memory for the `in` tensors."""
        return Region(sizes, at_end=at_end, readonly_for_others=True)

    def _write(self, memory: Memory, name: str, value: torch.Tensor) -> None:
        """Put a tensor into a buffer."""
        assert isinstance(memory, Region)
        view = memory.view(name)
        if len(view):
            # Contiguous tensors may have any stride along an axis of length 1, which bytes cannot be viewed through.
            flat = torch.as_strided(value.contiguous(), (value.numel(),), (1,))
            view[:] = flat.view(torch.uint8).numpy().data

    def _read(self, work: Memory, tensor: Tensor) -> Any:
        """What a buffer holds, flat: a view where `judge` takes the type, else an fp64 copy."""
        assert isinstance(work, Region)
        view, element = work.view(tensor.name), self.element(tensor)
        if not len(view):
            return np.empty(0)
        values = torch.frombuffer(view, dtype=TORCH_DTYPES[element.name])
        return (values.double() if element.size < 4 else values).numpy()

    def _placed(self, inputs: Inputs) -> Mapping[str, torch.Tensor]:
        """Inputs where reference and library are computed; not to be changed."""
        return inputs.tensors

    def _flat(self, value: torch.Tensor) -> Any:
        """In fp64, as `judge` takes it."""
        return np.ascontiguousarray(value.numpy(), dtype=np.float64).reshape(-1)

    # --- relations --------------------------------------------------------------------------------------------------

    def relations(self, case: Case, rng: np.random.Generator, *, trusted: Trusted | None = None) -> Iterator[Related]:
        """The operator's relations on a case. Raises OperatorError where reference.py makes something unusable.

        The caller runs `after` too (unless it is `before`), from memory that lies in the same way, lets `errors` judge
        it like any other case, and hands the `outputs` of both runs to `related_problem`.
        """
        # Functions of reference.py that draw work on the CPU.
        values: dict[str, Any] = {n: t.to("cpu", copy=True) for n, t in case.inputs.tensors.items()}
        extra = {"rng": rng, "dtype": DTYPES[self.dtype]}
        for relation in self.functions.relations({**case.dims, **self._scalars, **values, **extra}):
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
        tensors = {**case.inputs.tensors, **{n: t.contiguous() for n, t in relation.inputs.items()}}
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
        """What is wrong with the outputs of two runs, in words; None where they keep the relation.

        A kernel that is not deterministic is held to the bounds, also where a relation is exact.
        """
        expected = related.relation.expected(before)
        slack = self._slack(related)
        for name, wanted in expected.items():
            element, found = self.element(self._outputs[name]), after[name].reshape(-1).numpy()
            if related.relation.exact and deterministic:
                wanted = wanted.to(TORCH_DTYPES[element.name]).double()
                allowed = np.zeros(wanted.numel())
            else:
                allowed = related.after.allowed[name] + slack[name]
            flat = _flat(wanted)
            allowed[np.isnan(flat)] = math.inf  # the relation says nothing of these
            judgement = judge(found, np.nan_to_num(flat, nan=0.0, posinf=np.inf, neginf=-np.inf), allowed)
            if judgement.mismatches:
                return self._broken(related, name, judgement, found, flat, allowed)
        return None

    def _slack(self, related: Related) -> dict[str, np.ndarray]:
        """What the errors that `before` may have come to in what the relation expects."""
        case = related.before
        changed: dict[str, np.ndarray] = {}
        shapes = {t.name: t.sizes(case.dims) for t in self.operator.outputs}
        right = {n: torch.from_numpy(case.expected[n]).reshape(shape) for n, shape in shapes.items()}
        centre = related.relation.expected(right)
        for sign in (-1, 1):
            off = {n: y + sign * torch.from_numpy(case.allowed[n]).reshape(y.shape) for n, y in right.items()}
            for name, y in related.relation.expected(off).items():
                moved, middle = _flat(y), _flat(centre[name])
                with np.errstate(invalid="ignore"):
                    distance = np.where(moved == middle, 0.0, np.abs(moved - middle))
                distance[np.isnan(distance)] = math.inf
                changed[name] = np.maximum(changed.get(name, distance), distance)
        return changed

    def _broken(
        self,
        related: Related,
        name: str,
        judgement: Judgement,
        found: np.ndarray,
        wanted: np.ndarray,
        allowed: np.ndarray,
    ) -> str:
        first = judgement.first_bad
        assert first is not None
        shape = self._outputs[name].sizes(related.after.dims)
        index = [int(i) for i in np.unravel_index(first, shape)] if shape else []
        return (
            f"wrong result on {related.after.workload.name} ({related.after.family} inputs): {related.relation.name} "
            f"does not hold for {judgement.mismatches} of {found.size} elements of `{name}`, the first at {index}: "
            f"{found[first]:.9g} where its other result asks for {wanted[first]:.9g} within {allowed[first]:.2g}"
        )

    # --- answers ----------------------------------------------------------------------------------------------------

    def _answered(self, question: Question, trusted: Trusted | None) -> Case:
        # Copies: a reference that works in place must not change what the kernel is given.
        values = self._values(question.inputs, torch.float64)
        answer = self.functions.reference(values)
        self._check("reference", answer, question)
        magnitude = self.functions.magnitude(values | {"outputs": answer, "dtype": DTYPES[self.dtype]})
        self._check("magnitude", magnitude or {}, question)
        others: list[tuple[str, dict[str, Any]]] = []
        if self.operator.tolerance.bound != "exact":
            others = [*self._second_opinions(question.inputs)]
            for outputs in trusted(question) if trusted is not None else ():
                others.append((NAIVE, {n: self._flat(torch.as_tensor(y)) for n, y in outputs.items()}))
        expected: dict[str, Any] = {}
        allowed: dict[str, Any] = {}
        limit: dict[str, float] = {}
        out: dict[str, str] = {}
        for tensor in self.operator.outputs:
            name = tensor.name
            if self.operator.tolerance.bound == "exact" or not self.element(tensor).is_float:
                rounded = answer[name].to(TORCH_DTYPES[self.element(tensor).name]).double()
                expected[name], allowed[name] = self._flat(rounded), self._flat(torch.zeros_like(rounded))
                limit[name] = math.inf
                continue
            y64, opinions = self._flat(answer[name]), [other[name] for _, other in others]
            s = y64 if magnitude is None else self._flat(magnitude[name])
            limits = self._limits(tensor, question, y64, s, opinions)
            if self._integral(question, magnitude is not None):
                demand_exact(self._precision(tensor), limits, y64, s)
            judged = [judge(y, y64, limits.allowed) for y in opinions]
            if missed := [who for (who, _), verdict in zip(others, judged, strict=True) if verdict.mismatches]:
                out[name] = missed[0]
            expected[name], allowed[name] = y64, limits.allowed
            limit[name] = rms_limit(self._precision(tensor), limits, judged, naive=trusted is not None)
        q = question
        return Case(q.workload, q.family, q.inputs, q.region, q.at_end, expected, allowed, limit, out)

    def _values(self, inputs: Inputs, dtype: torch.dtype) -> dict[str, Any]:
        """What functions of reference.py are called with: copies, floating tensors in a type of our choice."""
        placed = self._placed(inputs).items()
        tensors = {n: t.to(dtype if t.is_floating_point() else t.dtype, copy=True) for n, t in placed}
        return {**inputs.dims, **self._scalars, **tensors}

    def _second_opinions(self, inputs: Inputs) -> Iterator[tuple[str, dict[str, Any]]]:
        """Outputs of the library in the task's own type and of the reference in the accumulator's, as rounded."""
        if self._library:
            values: dict[str, Any] = {n: t.clone() for n, t in self._placed(inputs).items()}
            values = {**inputs.dims, **self._scalars, **values}
            result = self.functions.library(values | {"prepared": self.functions.prepare(values)})
            yield "The library", self._rounded("library", result, inputs.dims)
        if self.accumulator.name != "fp64":
            values = self._values(inputs, TORCH_DTYPES[self.accumulator.name])
            try:
                result = self.functions.reference(values)
            except OperatorError:
                return  # one that insists on fp64 has no second opinion to offer
            yield f"The reference in {self.accumulator.name}", self._rounded("reference", result, inputs.dims)

    def _rounded(self, function: str, result: Any, dims: Mapping[str, int]) -> dict[str, Any]:
        by_name = result if isinstance(result, Mapping) else {self.operator.outputs[0].name: result}
        rounded = {}
        for tensor in self.operator.outputs:
            value = by_name.get(tensor.name)
            if not isinstance(value, torch.Tensor) or tuple(value.shape) != tensor.sizes(dims):
                found = list(value.shape) if isinstance(value, torch.Tensor) else type(value).__name__
                raise OperatorError(
                    f"{self._file}: {function}() made `{tensor.name}` as {found}, it must be a tensor "
                    f"{list(tensor.sizes(dims))}"
                )
            rounded[tensor.name] = self._flat(value.to(TORCH_DTYPES[self.element(tensor).name]).double())
        return rounded

    def _limits(self, tensor: Tensor, question: Question, y64: Any, s: Any, found: Sequence[Any]) -> Bound:
        """The bound of every element of one output."""
        precision = self._precision(tensor)
        terms = max(self.operator.tolerance.terms.evaluate(question.dims), 1)
        if self.operator.tolerance.bound == "measured":
            roundoffs = measured(precision, terms, question.family, y64, s, found)
        else:
            roundoffs = analysed(precision, terms, question.family)
        return element_bound(precision, y64, s, terms=terms, roundoffs=roundoffs)

    def _precision(self, tensor: Tensor) -> Precision:
        return Precision(self.element(tensor), self.accumulator, DTYPES[self.dtype])

    def _integral(self, question: Question, has_magnitude: bool) -> bool:
        """Whether results are exact: a linear operator on integers."""
        if question.family != "integers" or not self.operator.tolerance.exact_integers:
            return False
        if not has_magnitude:
            raise OperatorError(f"{self._file}: `def magnitude(...)` is missing; exact_integers needs the size of sums")
        floating = (t for t in question.inputs.tensors.values() if t.is_floating_point())
        return all(bool((t == t.round()).all()) for t in floating)

    @property
    def _file(self) -> str:
        return str(self.functions.module.__file__)

    def _check(self, function: str, answer: Mapping[str, Any], question: Question) -> None:
        """Refuse what numpy would broadcast, or round, in silence. Raises OperatorError."""
        for tensor in (t for t in self.operator.outputs if t.name in answer):
            value, shape = answer[tensor.name], tensor.sizes(question.dims)
            wide = self.element(tensor).is_float or function == "magnitude"
            right = isinstance(value, torch.Tensor) and tuple(value.shape) == shape
            if right and (value.dtype == torch.float64 if wide else not value.is_complex()):
                self._check_finite(function, tensor, value, question)
                continue
            found = f"{value.dtype} {list(value.shape)}" if isinstance(value, torch.Tensor) else type(value).__name__
            raise OperatorError(
                f"{self._file}: {function}() made `{tensor.name}` as {found}, "
                f"it must be {'torch.float64' if wide else 'a tensor of integers'} {list(shape)}"
            )

    def _check_finite(self, function: str, tensor: Tensor, value: torch.Tensor, question: Question) -> None:
        """Only an operator that declares what can be infinite or no number may answer so, and only to such inputs."""
        finite = bool(value.isfinite().all()) or (question.family == "specials" and self._declares_infinities)
        positive = function == "reference" or not bool((value < 0).any())
        if not (finite and positive):
            problem = "not finite" if function == "reference" else "negative or not finite"
            hints = "".join(f"; {hint}" for hint in departures(self.operator, self.dtype, question.family))
            raise OperatorError(
                f"{self._file}: {function}() made values of `{tensor.name}` that are {problem}, on "
                f"{question.workload.name} ({question.family} inputs){hints}"
            )

    @property
    def _declares_infinities(self) -> bool:
        return any({"inf", "nan", "huge"} & {*t.specials} for t in self.operator.inputs)


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


def _quotient(value: float, limit: float) -> float:
    if value == 0:
        return 0.0
    return value / limit if limit > 0 else math.inf


def _flat(value: torch.Tensor) -> np.ndarray:
    return np.ascontiguousarray(value.numpy(), dtype=np.float64).reshape(-1)
