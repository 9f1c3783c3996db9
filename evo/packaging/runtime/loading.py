"""A packaged kernel, read from its folder: its dims from the arrays it is called with, and its launches.

Packages carry this module and all that it imports: nothing but the standard library and the plan's own modules.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from itertools import accumulate
from operator import index, itemgetter
from pathlib import Path
from typing import Any

from evo.packaging.runtime import native
from fitness.judging.signature import Param, check_arguments
from operators.definition.portable import operator_of
from operators.definition.spec import Operator, Tensor
from operators.dtypes import DType, resolve_dtype
from operators.expression import Expression, ExpressionError, parse
from operators.plan.reading import Plan, ResolvedPlan, parse_plan

FORMAT = 1
"""The format of plan.json."""
ALIGNMENT = 16
"""Bytes on which the kernel may rely of every tensor's first element."""
PART_BYTES = 512
"""Parts of the memory for scratch begin on multiples of it, as torch's own allocations do."""
SCRATCH = ""
"""The name of that memory among a call's arrays, which no tensor has."""
REMEMBERED = 256
"""Forms of calls whose preparation is kept."""
NOTHING = ResolvedPlan((), (), (), ())
"""The plan of a call whose outputs have no elements."""


class CallError(ValueError):
    """The kernel cannot be called with these arrays; one line says why."""


class LayoutError(CallError):
    """An array is not dense or not aligned; a copy of it would be."""


@dataclass(frozen=True)
class ArrayForm:
    """The properties of an array that the loader looks at, besides where it lies."""

    dtype: str
    """A name of `operators.dtypes.DTYPES`, or the library's own where there is none."""
    shape: tuple[int, ...]
    contiguous: bool
    device: int | str
    """A GPU's number, or `cpu`."""


class Package:
    """A packaged kernel: its plan with the judged setting of the tunables, for one dtype."""

    def __init__(self, folder: Path) -> None:
        """It reads plan.json in `folder`."""
        data = json.loads((folder / "plan.json").read_text(encoding="utf-8"))
        if data["format"] != FORMAT:
            raise CallError(f"{folder / 'plan.json'} is of format {data['format']}; this loader reads {FORMAT}")
        self.folder = folder
        self.data: Mapping[str, Any] = data
        self.dtype: str = data["dtype"]
        self.values: Mapping[str, int] = data["values"]
        self.params = {name: tuple(Param(*each) for each in params) for name, params in data["params"].items()}

    @cached_property
    def operator(self) -> Operator:
        """Its signature."""
        return operator_of(self.data["operator"])

    @cached_property
    def plan(self) -> Plan:
        """The plan that the header declares."""
        header = f"/*! evo{self.data['header']}*/\n"
        return parse_plan(header, self.operator, self.data["target"], name="plan.json").for_dtype(self.dtype)

    def element(self, tensor: Tensor) -> DType:
        """The type of a tensor's elements."""
        return resolve_dtype(tensor.dtype, self.dtype)

    def dims(self, shapes: Mapping[str, Sequence[int]], given: Mapping[str, int]) -> Mapping[str, int]:
        """The dims that arrays of these shapes have, with those that are given. It raises CallError."""
        operator = self.operator
        known = {*operator.dims, *operator.data_dims}
        if strange := given.keys() - known:
            raise CallError(f"there is no dim {min(strange)}; there are {', '.join(sorted(known))}")
        try:
            dims = {name: index(size) for name, size in given.items()}
        except TypeError as error:
            raise CallError(f"dims are whole numbers: {error}") from None
        for tensor in operator.tensors:
            if tensor.name not in shapes:
                continue
            if len(shapes[tensor.name]) != len(tensor.shape):
                raise CallError(f"{tensor.name} has the shape {list(shapes[tensor.name])}, not [{_texts(tensor)}]")
            for axis, size in zip(tensor.shape, shapes[tensor.name], strict=True):
                if re.fullmatch(r"\w+", axis.text) and axis.text in known:
                    dims.setdefault(axis.text, int(size))
        if missing := [name for name in (*operator.dims, *operator.data_dims) if name not in dims]:
            raise CallError(f"no shape tells {', '.join(missing)}; say it: kernel(..., {missing[0]}=...)")
        try:
            env = operator.environment(dims)
            wanted_shapes = {t.name: t.sizes(env) for t in operator.tensors if t.name in shapes}
        except ExpressionError as error:
            raise CallError(f"these dims cannot be: {error}") from None
        for name, wanted_shape in wanted_shapes.items():
            if tuple(shapes[name]) != wanted_shape:
                said = ", ".join(f"{dim}={dims[dim]}" for dim in dims)
                raise CallError(f"{name} has the shape {list(shapes[name])}, not {list(wanted_shape)} as of {said}")
        return dims

    def check_judged(self, dims: Mapping[str, int]) -> None:
        """It raises CallError where nothing is known of the kernel: it may read what is not there, or be wrong."""
        said = ", ".join(f"{name}={size}" for name, size in dims.items())
        try:
            env = self.operator.environment(dims)
            unmet = next((condition for condition in self._conditions if not condition.evaluate(env)), None)
        except ExpressionError as error:
            raise CallError(f"these dims cannot be: {error}") from None
        if unmet:
            raise CallError(f"the kernel was judged where `{unmet.text}`, which {said} does not fulfil")

    @cached_property
    def _conditions(self) -> tuple[Expression, ...]:
        known = {*self.operator.dims, *self.operator.derived}
        return tuple(parse(text, known) for text in self.data["operator"]["conditions"])

    def shape(self, tensor: Tensor, dims: Mapping[str, int]) -> tuple[int, ...]:
        """The shape that a tensor has with these dims."""
        return tensor.sizes(self.operator.environment(dims))

    def sizes(self, dims: Mapping[str, int], resolved: ResolvedPlan) -> dict[str, int]:
        """Bytes of all tensors and buffers."""
        env = self.operator.environment(dims)
        tensors = {t.name: self.element(t).size * math.prod(t.sizes(env)) for t in self.operator.tensors}
        return tensors | {buffer.name: buffer.bytes for buffer in resolved.buffers}

    def check(self, forms: Mapping[str, ArrayForm]) -> None:
        """It raises CallError for the first array that the kernel was not made for, wherever it lies."""
        devices = {form.device for form in forms.values()}
        if len(devices) > 1:
            raise CallError(f"the arrays lie on several devices: {', '.join(sorted(map(str, devices)))}")
        for tensor in self.operator.tensors:
            if tensor.name not in forms:
                continue
            form, wanted = forms[tensor.name], self.element(tensor).name
            if form.dtype != wanted:
                raise CallError(f"{tensor.name} holds {form.dtype}, the kernel takes {wanted}")
            if not form.contiguous:
                raise LayoutError(f"{tensor.name} is not contiguous; call .contiguous() or ascontiguousarray() first")

    def resolved(
        self,
        dims: Mapping[str, int],
        facts: Mapping[str, int],
        occupancy: Callable[[str, int, int], int] | None = None,
    ) -> ResolvedPlan:
        """The steps of one call with these dims; `occupancy` tells the blocks per multiprocessor of a kernel, its
        threads and its dynamic shared memory in bytes. It raises CallError where the kernel does not serve these dims,
        and PlanError where its formulas have no value."""
        if not self.plan.supports(self.operator, dims, self.values, facts, self.dtype):
            said = ", ".join(f"{name}={size}" for name, size in dims.items())
            raise CallError(f"the kernel requires `{self.plan.requires.text}`, which {said} does not fulfil")
        found = self._with_occupancy(dims, facts, occupancy)
        if problem := check_arguments(found, self.params, self.operator, self.dtype):
            raise CallError(problem)
        return found

    def _with_occupancy(
        self, dims: Mapping[str, int], facts: Mapping[str, int], ask: Callable[[str, int, int], int] | None
    ) -> ResolvedPlan:
        def resolved(occupancy: Mapping[str, int]) -> ResolvedPlan:
            return self.plan.resolve(
                self.operator, dtype=self.dtype, dims=dims, values=self.values, facts=facts, occupancy=occupancy
            )

        wanted = self.plan.occupancy_kernels
        if not wanted or ask is None:
            return resolved({})
        # Blocks and shared memory do not depend on the occupancy, which depends on them.
        found: dict[str, int] = {}
        for step in resolved(dict.fromkeys(wanted, 1)).steps:
            if step.kernel in wanted:
                blocks = ask(step.kernel, math.prod(step.block), step.shared_bytes)
                found[step.kernel] = min(blocks, found.get(step.kernel, blocks))
        if not all(found.values()):
            raise CallError("no block of the kernel fits onto a multiprocessor of this GPU")
        return resolved(dict.fromkeys(wanted, 1) | found)


def _texts(tensor: Tensor) -> str:
    return ", ".join(axis.text for axis in tensor.shape)


# --- arrays ---------------------------------------------------------------------------------------------------------

TORCH_TYPES = {
    "fp64": "float64", "fp32": "float32", "fp16": "float16", "bf16": "bfloat16", "int64": "int64", "int32": "int32",
    "int8": "int8", "uint8": "uint8",
}  # fmt: skip
"""Types of elements by the names that torch, numpy and CuPy have for them."""


class Torch:
    """Tensors of torch."""

    name = "torch"

    def __init__(self) -> None:
        import torch

        self._torch = torch
        self._names = {getattr(torch, name): ours for ours, name in TORCH_TYPES.items()}
        self.address: Callable[[Any], int] = torch.Tensor.data_ptr
        """Where an array's first element lies."""

    def form(self, array: Any) -> tuple[Any, ...]:
        """The properties of the array that the loader looks at, in torch's words."""
        return array.dtype, array.shape, array.is_contiguous() and not array.is_neg(), array.device

    def told(self, form: tuple[Any, ...]) -> ArrayForm:
        """The same in ours."""
        dtype, shape, contiguous, device = form
        place = device.index if device.type == "cuda" else device.type
        return ArrayForm(self._names.get(dtype, str(dtype)), tuple(shape), contiguous, place)

    def may_be_written(self, array: Any) -> bool:
        """Whether the array's memory may be written, as far as torch knows."""
        return True

    def maker(self, shape: tuple[int, ...], dtype: str, device: int | str) -> Callable[[], Any]:
        """A function that makes new arrays, in the order of the current stream."""
        place = self._torch.device(device if isinstance(device, str) else f"cuda:{device}")
        strides = self._torch.empty(shape, device="meta").stride()  # `empty` alone takes half as long again
        kind = getattr(self._torch, TORCH_TYPES[dtype])
        return partial(self._torch.empty_strided, shape, strides, dtype=kind, device=place)

    def stream(self, device: int) -> int:
        """The current stream's handle."""
        return int(self._torch._C._cuda_getCurrentRawStream(device))  # a tenth of what torch.cuda.current_stream takes


class _Numbers:
    """Arrays of numpy, or of CuPy, which keeps to numpy's interface."""

    def __init__(self, module: Any) -> None:
        self._module = module
        self._names = {module.dtype(name).str: ours for ours, name in TORCH_TYPES.items() if ours != "bf16"}

    def told(self, form: tuple[Any, ...]) -> ArrayForm:
        """The properties that `form` tells, in our words."""
        dtype, shape, contiguous, device = form
        return ArrayForm(self._names.get(dtype.str, str(dtype)), shape, contiguous, device)


class Numpy(_Numbers):
    """Arrays of numpy."""

    name = "numpy"

    def __init__(self) -> None:
        import numpy

        super().__init__(numpy)

    def form(self, array: Any) -> tuple[Any, ...]:
        """The properties of the array that the loader looks at, in numpy's words."""
        return array.dtype, array.shape, array.flags.c_contiguous, "cpu"

    def address(self, array: Any) -> int:
        """Where its first element lies."""
        return int(array.ctypes.data)

    def may_be_written(self, array: Any) -> bool:
        """Whether the array's memory may be written."""
        return bool(array.flags.writeable)

    def maker(self, shape: tuple[int, ...], dtype: str, device: int | str) -> Callable[[], Any]:
        """A function that makes new arrays that begin on 64 bytes."""
        kind = self._module.dtype(TORCH_TYPES[dtype])
        size = math.prod(shape) * kind.itemsize

        def make() -> Any:
            memory = self._module.empty(size + 64, dtype=self._module.uint8)
            begin = -memory.ctypes.data % 64
            return memory[begin : begin + size].view(kind).reshape(shape)

        return make


class Cupy(_Numbers):
    """Arrays of CuPy."""

    name = "cupy"

    def __init__(self) -> None:
        import cupy

        super().__init__(cupy)

    def may_be_written(self, array: Any) -> bool:
        """Whether the array's memory may be written, as all of CuPy's may."""
        return True

    def form(self, array: Any) -> tuple[Any, ...]:
        """The properties of the array that the loader looks at, in CuPy's words."""
        return array.dtype, array.shape, array.flags.c_contiguous, array.device.id

    def address(self, array: Any) -> int:
        """Where its first element lies."""
        return int(array.data.ptr)

    def maker(self, shape: tuple[int, ...], dtype: str, device: int | str) -> Callable[[], Any]:
        """A function that makes new arrays of CuPy's pool, on the current stream."""

        def make() -> Any:
            with self._module.cuda.Device(device):
                return self._module.empty(shape, dtype=TORCH_TYPES[dtype])

        return make

    def stream(self, device: int) -> int:
        """The current stream's handle."""
        return int(self._module.cuda.get_current_stream(device).ptr)


def _launch_nothing(_: Mapping[str, int]) -> None:
    """The launch where there is nothing to compute."""


# --- calls ----------------------------------------------------------------------------------------------------------


class PreparedCall:
    """A call of arrays of certain forms: all that does not depend on where they lie, worked out once."""

    def __init__(
        self,
        package: Package,
        library: Any,
        given: Sequence[str],
        made: Mapping[str, Callable[[], Any]],
        scratch: Mapping[str, int],
        sizes: Mapping[str, int],
        launch: Callable[[Mapping[str, int]], object],
    ) -> None:
        """`given` are the tensors that the caller has, `made` the makers of the others and of scratch, which `scratch`
        tells the parts of by their offsets, `sizes` are in bytes, and `launch` launches the kernel on tensors and
        scratch at these addresses."""
        self._names = (*given, *made)
        self._makers = tuple(made.values())
        self._scratch = tuple(scratch.items())
        self._address = library.address
        self._launch = launch
        self._outputs = itemgetter(*[self._names.index(tensor.name) for tensor in package.operator.outputs])
        outputs = {tensor.name for tensor in package.operator.outputs}
        self._written = [place for place, name in enumerate(given) if name in outputs]
        self._may_be_written = library.may_be_written
        self._empty = {name for name, size in sizes.items() if not size}
        self._apart = [  # kernels are judged with tensors that share no memory; only inputs may here
            (written.name, sizes[written.name], name, sizes[name])
            for written in package.operator.outputs
            for name in given
            if written.name in given and name != written.name
        ]

    def __call__(self, given: Sequence[Any]) -> Any:
        """Launch the kernel, and return the one output, or all of them in the order of the signature."""
        arrays = [*given, *[make() for make in self._makers]]
        addresses = dict(zip(self._names, map(self._address, arrays)))  # noqa: B905
        for place in self._written:
            if not self._may_be_written(given[place]):
                raise CallError(f"{self._names[place]} is written, and may only be read")
        for name, address in addresses.items():
            if not address and name not in self._empty:
                raise CallError(f"{name} has no memory: it is no array of numbers that are there")
            if address % ALIGNMENT:
                raise LayoutError(f"{name} does not begin on a multiple of {ALIGNMENT} bytes; copy it first")
        for written, written_bytes, name, size in self._apart:
            if addresses[written] < addresses[name] + size and addresses[name] < addresses[written] + written_bytes:
                raise CallError(f"{written}, which is written, shares memory with {name}")
        for name, offset in self._scratch:
            addresses[name] = addresses[SCRATCH] + offset
        self._launch(addresses)
        return self._outputs(arrays)


class PackagedKernel:
    """A kernel that can be called: `y = kernel(x)`, or `kernel(x, out=y)`.

    Inputs come in the order of `inputs`. Outputs are made where `out` names none. Dims that no shape tells are said by
    name. It raises CallError, a ValueError, for arrays that the kernel was not made for.
    """

    def __init__(self, package: Package, offered: Mapping[str, Callable[[], Any]]) -> None:
        """`package` is where everything about it stands, `offered` are the libraries whose arrays it takes."""
        self.package = package
        self.inputs = tuple(tensor.name for tensor in package.operator.inputs)
        self.outputs = tuple(tensor.name for tensor in package.operator.outputs)
        self.direct: Callable[..., Any] | None = None
        """A compiled way of torch's tensors, which says NotImplemented to what is unusual, and returns what it made."""
        self._changes = any(tensor.role == "inout" for tensor in package.operator.tensors)
        self._offered = offered
        self._library = lru_cache(REMEMBERED)(self._library_of)
        self._made_by = lru_cache(lambda name: offered[name]())
        self._call = lru_cache(REMEMBERED)(self._prepared)

    def __call__(self, *inputs: Any, out: Any = None, **dims: int) -> Any:
        """Launch it, and return the outputs: one, or a tuple of them."""
        if self.direct is not None and out is None and not self._changes:
            found = self.direct(*inputs, **dims)
            if found is not NotImplemented:
                return found
        outs = () if out is None else out if isinstance(out, tuple | list) else (out,)
        given = (*inputs, *outs)
        library = self._library(*map(type, given))
        forms = tuple(map(library.form, given))
        return self._call(library, len(inputs), out is not None, forms, tuple(dims.items()))(given)

    def hand_over(self, library: Any, device: int, functions: Sequence[Any]) -> None:
        """Have a binding that was built call these functions for torch's tensors on the device, in the plan's order."""
        if library.name == "torch" and (binding := native.built(self.package.folder)):
            binding.add(device, [int(function) for function in functions])  # their addresses
            self.direct = binding.call

    def _library_of(self, *kinds: type) -> Any:
        """Torch, Numpy or Cupy, whichever made arrays of these types. It raises CallError for others, and for a
        mixture."""
        names = {kind.__module__.partition(".")[0] for kind in kinds}
        if len(names) != 1 or not names <= self._offered.keys():
            offered = " or of ".join(self._offered)
            raise CallError(f"the kernel takes arrays of {offered}, not of {', '.join(sorted(names))}")
        return self._made_by(names.pop())

    def _prepared(
        self, library: Any, inputs: int, has_outs: bool, given: Sequence[Any], said: Sequence[tuple[str, int]]
    ) -> PreparedCall:
        """A call of arrays of these forms, of which the first are inputs. It raises CallError."""
        package, made = self.package, [t for t in self.package.operator.outputs if t.role == "out"]
        if inputs != len(self.inputs):
            raise CallError(f"the kernel takes {len(self.inputs)} arrays ({', '.join(self.inputs)}), not {inputs}")
        names = [tensor.name for tensor in made]
        if has_outs and len(given) - inputs != len(made):
            raise CallError(f"`out` has {len(given) - inputs} arrays, not {len(made)}: {', '.join(names)}")
        forms = dict(zip((*self.inputs, *names), map(library.told, given), strict=False))
        package.check(forms)
        dims = package.dims({name: form.shape for name, form in forms.items()}, dict(said))
        device = next(iter(forms.values())).device
        shapes = {tensor.name: package.shape(tensor, dims) for tensor in package.operator.outputs}
        empty = all(0 in shape for shape in shapes.values())
        if not empty:
            package.check_judged(dims)
        resolved, launch = (NOTHING, _launch_nothing) if empty else self._launcher(library, device, dims)
        makers = {
            t.name: library.maker(shapes[t.name], package.element(t).name, device) for t in made if t.name not in forms
        }
        # Freed memory of torch and of CuPy is reused in the order of its stream, so scratch needs no waiting. It is no
        # call's own for longer than that: a CUDA graph would go on using it.
        ends = list(accumulate((-(-buffer.bytes // PART_BYTES) * PART_BYTES for buffer in resolved.buffers), initial=0))
        scratch = dict(zip((buffer.name for buffer in resolved.buffers), ends, strict=False))
        if scratch:
            makers[SCRATCH] = library.maker((ends[-1],), "uint8", device)
        return PreparedCall(package, library, tuple(forms), makers, scratch, package.sizes(dims, resolved), launch)

    def _launcher(
        self, library: Any, device: int | str, dims: Mapping[str, int]
    ) -> tuple[ResolvedPlan, Callable[[Mapping[str, int]], object]]:
        """The plan of calls with these dims, and what launches one on tensors and scratch at given addresses."""
        raise NotImplementedError
