"""A packaged kernel as an operator of torch, for torch.compile, graphs, streams and devices.

It is `torch.ops.NAMESPACE.NAME`. Shapes are told without running anything (a fake implementation), outputs are new
tensors, and what is called is the loader that `load()` gives, in the current stream of the tensors' device. It has no
backward: a gradient that is asked for is refused in one line, unless `register_backward` was given one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.autograd import forward_ad

from evo.packaging.runtime import native
from evo.packaging.runtime.loading import ALIGNMENT, TORCH_TYPES, CallError, LayoutError, PackagedKernel

KEYS = {"cpu": "CPU", "cuda": "CUDA"}
"""By target, where torch dispatches to."""
PLAIN = frozenset((torch.Tensor, torch.nn.Parameter))
"""Types of tensors whose operators nothing overrides."""
KEY = torch._C.DispatchKey
OTHERS = ~(torch._C.DispatchKeySet(KEY.BackendSelect) | torch._C.DispatchKeySet(KEY.ADInplaceOrView)).raw_repr()
"""Keys that torch's dispatcher has in a thread only while a mode, a transform or a trace is at work there."""
REGISTRY = "_kernel_evo_operators"
"""Name in torch of the operators that are registered: each package that is loaded has a copy of this module."""


class TorchOp:
    """The operator of one kernel, called like a function: `y = op(x)`, and dims that no shape tells by name."""

    def __init__(self, kernel: PackagedKernel) -> None:
        """It registers the operator with torch, for as long as the process lives."""
        self._kernel = kernel
        self._package = kernel.package
        self._backward: Callable[..., Any] | None = None
        operator, data = self._package.operator, self._package.data
        self.name = f"{data['torch']['namespace']}::{data['torch']['name']}"
        self._made = [tensor for tensor in operator.outputs if tensor.role == "out"]
        self._changed = {tensor.name for tensor in operator.outputs} - {tensor.name for tensor in self._made}
        told = {axis.text for tensor in operator.inputs for axis in tensor.shape}
        self._dims = [dim for dim in (*operator.dims, *operator.data_dims) if dim not in told]
        """Dims that a caller has to say."""
        torch.library.define(self.name, self._schema())
        namespace, _, name = self.name.partition("::")
        if binding := native.built(self._package.folder):
            binding.serve(namespace, name, KEYS[data["target"]], self.run)
        else:
            torch.library.impl(self.name, KEYS[data["target"]])(self.run)
        torch.library.register_fake(self.name, self._fake)
        if not self._changed:  # torch differentiates nothing that is changed in place
            torch.library.register_autograd(self.name, self._gradient, setup_context=self._keep)
        self._op = getattr(getattr(torch.ops, namespace), name)

    def __call__(self, *inputs: torch.Tensor, **dims: int) -> Any:
        """The output, or all of them in the order of the signature.

        Where torch would do no more than hand the call on, the kernel is called at once: torch takes some 15 us for it.
        """
        if torch.compiler.is_compiling():
            return self._op(*inputs, **dims)
        if (direct := self._kernel.direct) is not None and (found := direct(*inputs, **dims)) is not NotImplemented:
            return found
        if len(inputs) != len(self._kernel.inputs):
            names = ", ".join(self._kernel.inputs)
            raise CallError(f"the kernel takes {len(self._kernel.inputs)} tensors ({names}), not {len(inputs)}")
        if (
            not is_direct()
            or not PLAIN.issuperset(map(type, inputs))
            or (torch.is_grad_enabled() and any(tensor.requires_grad for tensor in inputs))
        ):
            for name, each in zip(self._kernel.inputs, inputs, strict=True):
                if not isinstance(each, torch.Tensor):  # torch would print all of it
                    raise CallError(f"{name} is no tensor of torch; what load() returns may take it")
            return self._op(*inputs, **dims)
        return self.run(*inputs, **dims)

    def run(self, *inputs: torch.Tensor, **dims: int) -> Any:
        """Call the kernel, past torch: for plain tensors without gradients where `is_direct`."""
        try:
            found = self._kernel(*inputs, **dims)
        except LayoutError:
            ready = [
                tensor if name in self._changed else _ready(tensor)
                for name, tensor in zip(self._kernel.inputs, inputs, strict=True)
            ]
            found = self._kernel(*ready, **dims)
        if not self._changed:
            return found
        outs = found if isinstance(found, tuple) else (found,)
        named = zip(self._kernel.outputs, outs, strict=True)
        return _returned(tuple(each for name, each in named if name not in self._changed))

    def register_backward(self, backward: Callable[..., Any]) -> None:
        """Give it a backward: `backward(inputs, outputs, gradients)` returns a gradient, or None, for each input.

        `inputs`, `outputs` and `gradients` are tuples of tensors. Another kernel of kernel-evo may be called in it.
        """
        self._backward = backward

    def _schema(self) -> str:
        """The signature as torch writes it; tensors that are changed in place are marked."""
        marks = iter("abcdefghijklmnopqrstuvwxyz")
        inputs = [f"Tensor({next(marks)}!) {n}" if n in self._changed else f"Tensor {n}" for n in self._kernel.inputs]
        dims = ["*", *(f"SymInt {dim}" for dim in self._dims)] if self._dims else []
        outputs = ["Tensor"] * len(self._made)
        result = outputs[0] if len(outputs) == 1 else f"({', '.join(outputs)})"
        return f"({', '.join([*inputs, *dims])}) -> {result}"

    def _fake(self, *inputs: torch.Tensor, **dims: int) -> Any:
        # Sizes that torch.compile would keep symbolic are fixed here: a program is compiled for each set of them.
        shapes = {n: tuple(map(int, tensor.shape)) for n, tensor in zip(self._kernel.inputs, inputs, strict=True)}
        known = self._package.dims(shapes, {name: int(size) for name, size in dims.items()})
        outs = tuple(
            torch.empty(
                self._package.shape(tensor, known),
                dtype=getattr(torch, TORCH_TYPES[self._package.element(tensor).name]),
                device=inputs[0].device,
            )
            for tensor in self._made
        )
        return _returned(outs)

    def _keep(self, ctx: Any, inputs: Sequence[torch.Tensor], output: Any, keyword_only_inputs: Any = None) -> None:
        outputs = output if isinstance(output, tuple) else (output,)
        tensors = [each for each in inputs if isinstance(each, torch.Tensor)]
        ctx.count = len(tensors)
        if self._backward:
            ctx.save_for_backward(*tensors, *outputs)

    def _gradient(self, ctx: Any, *gradients: torch.Tensor) -> Any:
        if self._backward is None:
            raise NotImplementedError(
                f"{self.name} has no backward: call it under torch.no_grad(), on detached tensors, or give it one with "
                "register_backward"
            )
        saved = ctx.saved_tensors
        found = self._backward(tuple(saved[: ctx.count]), tuple(saved[ctx.count :]), gradients)
        return found[0] if isinstance(found, tuple | list) and len(found) == 1 else found


def is_direct() -> bool:
    """Whether torch would do nothing for calls of plain tensors without gradients but hand them on to the kernel.

    In this thread no mode, no transform (such as vmap or jvp), no trace and no level of forward derivatives is at work.
    """
    return (
        not torch._C._dispatch_tls_local_include_set().raw_repr() & OTHERS
        and not torch._C._is_torch_function_mode_enabled()
        and forward_ad._current_level < 0
    )


def _returned(outs: tuple[torch.Tensor, ...]) -> Any:
    """The outputs as torch wants them of an operator."""
    return outs[0] if len(outs) == 1 else outs or None


def _ready(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor as kernels take it, dense and aligned: a copy where it is not."""
    dense = tensor.resolve_neg().contiguous()
    return dense.clone() if dense.data_ptr() % ALIGNMENT else dense


def registered(kernel: PackagedKernel) -> TorchOp:
    """The operator of this kernel, which a process registers once, from however many folders it is loaded."""
    known: dict[str, TorchOp] = vars(torch).setdefault(REGISTRY, {})
    name = kernel.package.data["torch"]["namespace"]
    if name not in known:
        known[name] = TorchOp(kernel)
    return known[name]
