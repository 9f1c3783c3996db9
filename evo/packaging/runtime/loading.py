"""A packaged kernel, read from its folder: its dims from the arrays it is called with, and its launches.

Packages carry this module and all that it imports: nothing but the standard library and the plan's own modules.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from fitness.judging.signature import Param, check_arguments
from operators.definition.portable import operator_of
from operators.definition.spec import Operator, Tensor
from operators.dtypes import DTYPES, DType, resolve_dtype
from operators.expression import ExpressionError
from operators.plan.launch import ResolvedBuffer
from operators.plan.reading import Plan, ResolvedPlan, parse_plan

FORMAT = 1
"""The format of plan.json."""
ALIGNMENT = 16
"""Bytes on which the kernel may rely of every tensor's first element."""
REMEMBERED = 256
"""Settings of the dims whose resolved plans are kept."""


class CallError(ValueError):
    """The kernel cannot be called with these arrays; one line says why."""


@dataclass(frozen=True)
class ArrayView:
    """The properties of an array that the loader looks at."""

    dtype: str
    """A name of `operators.dtypes.DTYPES`, or the library's own where there is none."""
    shape: tuple[int, ...]
    contiguous: bool
    address: int
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
        self._dims: dict[tuple[object, ...], Mapping[str, int]] = {}
        self._shapes: dict[tuple[tuple[str, int], ...], Mapping[str, tuple[int, ...]]] = {}
        self._resolved: dict[tuple[object, ...], ResolvedPlan] = {}

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
        key = (*((name, *shape) for name, shape in shapes.items()), *sorted(given.items()))
        if key not in self._dims:
            found = self._found_dims(shapes, given)
            if len(self._dims) >= REMEMBERED:
                self._dims.clear()
            self._dims[key] = found
        return self._dims[key]

    def _found_dims(self, shapes: Mapping[str, Sequence[int]], given: Mapping[str, int]) -> dict[str, int]:
        operator = self.operator
        known = {*operator.dims, *operator.data_dims}
        if strange := given.keys() - known:
            raise CallError(f"there is no dim {min(strange)}; there are {', '.join(sorted(known))}")
        dims = dict(given)
        for tensor in operator.tensors:
            if tensor.name not in shapes:
                continue
            if len(shapes[tensor.name]) != len(tensor.shape):
                wanted, found = len(tensor.shape), len(shapes[tensor.name])
                raise CallError(f"{tensor.name} has {found} axes; [{_texts(tensor)}] are {wanted}")
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

    def shape(self, tensor: Tensor, dims: Mapping[str, int]) -> tuple[int, ...]:
        """The shape that a tensor has with these dims."""
        key = (*dims.items(),)
        if key not in self._shapes:
            if len(self._shapes) >= REMEMBERED:
                self._shapes.clear()
            env = self.operator.environment(dims)
            self._shapes[key] = {each.name: each.sizes(env) for each in self.operator.tensors}
        return self._shapes[key][tensor.name]

    def sizes(self, dims: Mapping[str, int], resolved: ResolvedPlan) -> dict[str, int]:
        """Bytes of all tensors and buffers."""
        tensors = {t.name: self.element(t).size * math.prod(self.shape(t, dims)) for t in self.operator.tensors}
        return tensors | {buffer.name: buffer.bytes for buffer in resolved.buffers}

    def check(self, views: Mapping[str, ArrayView]) -> None:
        """It raises CallError for the first array that the kernel was not made for."""
        devices = {view.device for view in views.values()}
        if len(devices) > 1:
            raise CallError(f"the arrays lie on several devices: {', '.join(sorted(map(str, devices)))}")
        for tensor in self.operator.tensors:
            if tensor.name not in views:
                continue
            view, wanted = views[tensor.name], self.element(tensor).name
            if view.dtype != wanted:
                raise CallError(f"{tensor.name} holds {view.dtype}, the kernel takes {wanted}")
            if not view.contiguous:
                raise CallError(f"{tensor.name} is not contiguous; call .contiguous() or ascontiguousarray() first")
            if view.address % ALIGNMENT:
                raise CallError(f"{tensor.name} does not begin on a multiple of {ALIGNMENT} bytes; copy it first")
        self._check_apart(views)

    def _check_apart(self, views: Mapping[str, ArrayView]) -> None:
        """Kernels are judged with tensors that share no memory; only inputs may here."""
        ends = {n: v.address + DTYPES[v.dtype].size * math.prod(v.shape) for n, v in views.items()}
        for written in self.operator.outputs:
            for name, view in views.items():
                if name != written.name and written.name in views:
                    begin = views[written.name].address
                    if begin < ends[name] and view.address < ends[written.name]:
                        raise CallError(f"{written.name}, which is written, shares memory with {name}")

    def resolved(
        self,
        dims: Mapping[str, int],
        facts: Mapping[str, int],
        occupancy: Callable[[str, int, int], int] | None = None,
    ) -> ResolvedPlan:
        """The steps of one call with these dims; `occupancy` tells the blocks per multiprocessor of a kernel, its
        threads and its dynamic shared memory in bytes. It raises CallError where the kernel does not serve these dims,
        and PlanError where its formulas have no value."""
        key = (*sorted(dims.items()), *sorted(facts.items()))
        if key not in self._resolved:
            if not self.plan.supports(self.operator, dims, self.values, facts, self.dtype):
                said = ", ".join(f"{name}={size}" for name, size in dims.items())
                raise CallError(f"the kernel requires `{self.plan.requires.text}`, which {said} does not fulfil")
            found = self._with_occupancy(dims, facts, occupancy)
            if problem := check_arguments(found, self.params, self.operator, self.dtype):
                raise CallError(problem)
            if len(self._resolved) >= REMEMBERED:
                self._resolved.clear()
            self._resolved[key] = found
        return self._resolved[key]

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

    def view(self, array: Any) -> ArrayView:
        """The properties of the array that the loader looks at."""
        device = array.device.index if array.device.type == "cuda" else array.device.type
        dtype = self._names.get(array.dtype, str(array.dtype))
        return ArrayView(dtype, tuple(array.shape), array.is_contiguous(), array.data_ptr(), device)

    def empty(self, shape: tuple[int, ...], dtype: str, device: int | str) -> Any:
        """A new array, in the order of the current stream."""
        place = device if isinstance(device, str) else f"cuda:{device}"
        return self._torch.empty(shape, dtype=getattr(self._torch, TORCH_TYPES[dtype]), device=place)

    def stream(self, device: int) -> int:
        """The current stream's handle."""
        return int(self._torch.cuda.current_stream(device).cuda_stream)


class _Numbers:
    """Arrays of numpy, or of CuPy, which keeps to numpy's interface."""

    def __init__(self, module: Any) -> None:
        self._module = module
        self._names = {module.dtype(name).str: ours for ours, name in TORCH_TYPES.items() if ours != "bf16"}

    def _dtype(self, array: Any) -> str:
        return self._names.get(array.dtype.str, str(array.dtype))


class Numpy(_Numbers):
    """Arrays of numpy."""

    name = "numpy"

    def __init__(self) -> None:
        import numpy

        super().__init__(numpy)

    def view(self, array: Any) -> ArrayView:
        """The properties of the array that the loader looks at."""
        return ArrayView(self._dtype(array), array.shape, array.flags.c_contiguous, array.ctypes.data, "cpu")

    def empty(self, shape: tuple[int, ...], dtype: str, device: int | str) -> Any:
        """A new array that begins on 64 bytes."""
        kind = self._module.dtype(TORCH_TYPES[dtype])
        size = math.prod(shape) * kind.itemsize
        memory = self._module.empty(size + 64, dtype=self._module.uint8)
        begin = -memory.ctypes.data % 64
        return memory[begin : begin + size].view(kind).reshape(shape)


class Cupy(_Numbers):
    """Arrays of CuPy."""

    name = "cupy"

    def __init__(self) -> None:
        import cupy

        super().__init__(cupy)

    def view(self, array: Any) -> ArrayView:
        """The properties of the array that the loader looks at."""
        return ArrayView(self._dtype(array), array.shape, array.flags.c_contiguous, array.data.ptr, array.device.id)

    def empty(self, shape: tuple[int, ...], dtype: str, device: int | str) -> Any:
        """A new array of CuPy's pool, on the current stream."""
        with self._module.cuda.Device(device):
            return self._module.empty(shape, dtype=TORCH_TYPES[dtype])

    def stream(self, device: int) -> int:
        """The current stream's handle."""
        return int(self._module.cuda.get_current_stream(device).ptr)


_known: dict[str, Any] = {}


def library_of(arrays: Iterable[Any], offered: Mapping[str, Callable[[], Any]]) -> Any:
    """Torch, Numpy or Cupy, whichever made the arrays. It raises CallError for others, and for a mixture."""
    names = {type(array).__module__.partition(".")[0] for array in arrays}
    if len(names) != 1 or not names <= offered.keys():
        raise CallError(f"the kernel takes arrays of {' or of '.join(offered)}, not of {', '.join(sorted(names))}")
    name = names.pop()
    if name not in _known:
        _known[name] = offered[name]()
    return _known[name]


class Called:
    """One call: all arrays by name, outputs made where none were given, and the dims."""

    def __init__(self, package: Package, library: Any, given: Sequence[Any], out: Any, dims: Mapping[str, int]) -> None:
        """`given` are the inputs in the order of the signature, `out` the outputs likewise, or None."""
        operator = package.operator
        if len(given) != len(operator.inputs):
            names = ", ".join(tensor.name for tensor in operator.inputs)
            raise CallError(f"the kernel takes {len(operator.inputs)} arrays ({names}), not {len(given)}")
        self.arrays: dict[str, Any] = {t.name: array for t, array in zip(operator.inputs, given, strict=True)}
        made = [tensor for tensor in operator.outputs if tensor.role == "out"]
        if out is not None:
            outs = list(out) if isinstance(out, tuple | list) else [out]
            if len(outs) != len(made):
                raise CallError(f"`out` has {len(outs)} arrays, not {len(made)}: {', '.join(t.name for t in made)}")
            self.arrays |= {t.name: array for t, array in zip(made, outs, strict=True)}
        views = {name: library.view(array) for name, array in self.arrays.items()}
        self.dims = package.dims({name: view.shape for name, view in views.items()}, dims)
        self.device = next(iter(views.values())).device
        for tensor in made:
            if tensor.name not in views:
                shape = package.shape(tensor, self.dims)
                self.arrays[tensor.name] = library.empty(shape, package.element(tensor).name, self.device)
                views[tensor.name] = library.view(self.arrays[tensor.name])
        package.check(views)
        self._library = library
        self._scratch: dict[str, Any] = {}
        self._addresses = {name: view.address for name, view in views.items()}
        self._outputs = [self.arrays[tensor.name] for tensor in operator.outputs]

    def addresses_with(self, buffers: Iterable[ResolvedBuffer]) -> dict[str, int]:
        """The addresses of all tensors, and of these buffers, which are made and live as long as this object."""
        self._scratch = {b.name: self._library.empty((b.bytes,), "uint8", self.device) for b in buffers}
        return self._addresses | {name: self._library.view(array).address for name, array in self._scratch.items()}

    @property
    def result(self) -> Any:
        """The one output, or all of them in the order of the signature."""
        return self._outputs[0] if len(self._outputs) == 1 else tuple(self._outputs)


class PackagedKernel:
    """A kernel that can be called: `y = kernel(x)`, or `kernel(x, out=y)`.

    Inputs come in the order of `inputs`. Outputs are made where `out` names none. Dims that no shape tells are said by
    name. It raises CallError, a ValueError, for arrays that the kernel was not made for.
    """

    def __init__(self, package: Package) -> None:
        """`package` is where everything about it stands."""
        self.package = package
        self.inputs = tuple(tensor.name for tensor in package.operator.inputs)
        self.outputs = tuple(tensor.name for tensor in package.operator.outputs)

    def __call__(self, *inputs: Any, out: Any = None, **dims: int) -> Any:
        """Launch it, and return the outputs: one, or a tuple of them."""
        raise NotImplementedError
