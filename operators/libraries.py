"""Calls of vendors' libraries that kernels are compared with: what an operator's `libraries.py` declares.

It defines `LIBRARIES`, a sequence of `LibraryCall`: `own(NAME)` names the `library(...)` of reference.py, the others
stand beside it, and what `torch.compile` makes of `library(...)` is added to them. Which is the baseline of a workload
is a matter of time (`fitness.judging.library`); none of them decides a verdict, which is why the file is no part of an
operator's fingerprint.
"""

from __future__ import annotations

import importlib
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from inspect import Parameter, Signature, signature
from typing import Any, Literal

LIBRARIES = "libraries.py"
Kind = Literal["call", "compiled", "converted", "composed"]
"""Classes of rivals. `call`: one call of a vendor's library. `compiled`: what torch.compile makes of an expression.
`converted`: a call that gets an operand in another form or order than a kernel does. `composed`: several calls, since
the library has no one call for it."""
Arrays = Literal["torch", "numpy", "cupy"]
ROOTS: dict[str, Arrays] = {"numpy": "numpy", "scipy": "numpy", "cupy": "cupy", "cupyx": "cupy"}
"""Arrays that a library takes, by the first word of its calls' names; any other takes torch's tensors."""
TARGETS: dict[Arrays, tuple[str, ...]] = {"torch": ("cpu", "cuda"), "numpy": ("cpu",), "cupy": ("cuda",)}
WITHOUT_BF16 = ("numpy", "cupy")
"""These have no such type; a call that is given bytes and says so itself takes torch's tensors."""
NARROW = ("bf16", "fp16")
CONVERTED = " (converted before)"
"""Ends the name of a `converted` call. The conversion is not timed: the call is spared work that a kernel has to do,
which a reader of a comparison must know."""
COMPOSED = ", composed"
"""Ends the name of a `composed` call wherever it is told."""
COMPILED = "torch.compile"
"""Begins the name of a `compiled` call."""
UNTRIED = "rivals untried"
"""Stands beside figures where some rivals were not tried, compiled ones or those of a package that is not there."""
MODE = "max-autotune-no-cudagraphs"
"""The mode in which expressions are compiled: the fastest of what the compiler knows, by its own measurement."""
UNSERVED = " (not served at some sizes)"
"""Ends the name of an untried call that the machine could not serve at some sizes, for want of memory or time."""
WITHOUT_COMPILER = "TORCH_COMPILE_DISABLE"
"""Torch's own environment variable; where it is 1, nothing is compiled, and no compiled rival is tried."""
RIVALS = {"cuda.compute": "cuda-cccl", "liger_kernel": "liger-kernel", "nvmath": "nvmath-python"}
"""Modules that the extra `rivals` adds, with the packages that have them; their calls are made on a GPU."""
RECOMPILATIONS = 256
"""Most shapes that one expression is compiled for in a process; each workload has its own code."""
UNNAMED = "library()"
"""The name of a call without a name of its own."""


@dataclass(frozen=True)
class LibraryCall:
    """One way to have the operator's result from a vendor's library."""

    name: str
    """The name in the library's documentation; where several calls are needed, the one that does most."""
    function: Callable[..., Any] | None = None
    """It gets what it names of dims, scalars, tensors in the task's dtype and `prepared`, as `library(...)` does, and
    returns what that returns. None: `library(...)` itself."""
    prepare: Callable[..., Any] | None = None
    """Preparation, which is not timed: plans, handles, the vendor's matrix objects."""
    kind: Kind = "call"
    composed_in: tuple[str, ...] = ()
    """Task dtypes that need several calls where others need one: conversions of what the library rounds too early."""
    arrays: Arrays = "torch"
    targets: tuple[str, ...] = ("cpu", "cuda")
    dtypes: tuple[str, ...] = ()
    """Element types of tasks; empty: all that its arrays know."""

    @property
    def rival(self) -> str:
        """The module of the extra `rivals` that it is of, as RIVALS has it; empty for calls of other packages."""
        return next((module for module in RIVALS if self.name.startswith(module)), "")

    def of(self, dtype: str) -> LibraryCall:
        """The call as it is in tasks of a dtype."""
        return replace(self, kind="composed") if self.kind == "call" and dtype in self.composed_in else self

    def serves(self, target: str, dtype: str) -> bool:
        """Whether tasks of a target and dtype may try it."""
        known = not (dtype == "bf16" and self.arrays in WITHOUT_BF16)
        return target in self.targets and known and (not self.dtypes or dtype in self.dtypes)


def own(
    name: str, *, composed: bool = False, composed_in: tuple[str, ...] = (), converted: bool = False
) -> LibraryCall:
    """Return the `library(...)` of the operator's reference.py under the name of what it calls."""
    return LibraryCall(name + CONVERTED * converted, kind=_kind(composed, converted), composed_in=composed_in)


def call(
    name: str,
    function: Callable[..., Any],
    *,
    prepare: Callable[..., Any] | None = None,
    composed: bool = False,
    converted: bool = False,
    targets: tuple[str, ...] = (),
    dtypes: tuple[str, ...] = (),
) -> LibraryCall:
    """Return a call that a function makes. Its arrays are those of the library that `name` begins with."""
    arrays = ROOTS.get(name.split(".")[0], "torch")
    name += CONVERTED * converted
    kind = _kind(composed, converted)
    return LibraryCall(name, function, prepare, kind, (), arrays, targets or TARGETS[arrays], dtypes)


def ready(
    name: str,
    prepare: Callable[..., Callable[[], Any]],
    *,
    converted: bool = False,
    targets: tuple[str, ...] = (),
    dtypes: tuple[str, ...] = (),
) -> LibraryCall:
    """Return a call for which all is prepared: `prepare` returns what takes no argument any more and is timed."""
    return call(name, _called, prepare=prepare, converted=converted, targets=targets, dtypes=dtypes)


def _called(prepared: Callable[[], Any]) -> Any:
    return prepared()


def with_arguments_of(
    named: Callable[..., Iterable[Any]], function: Callable[..., Callable[[], Any]]
) -> Callable[..., Callable[[], Any]]:
    """Return `function` of all that `named` returns, which gets the arguments that the signature of `named` names."""

    def made(**arguments: Any) -> Callable[[], Any]:
        return function(*named(**arguments))

    made.__signature__ = signature(named)  # type: ignore[attr-defined]
    return made


def _kind(composed: bool, converted: bool) -> Kind:
    return "converted" if converted else "composed" if composed else "call"


def compiled(name: str) -> LibraryCall:
    """Return what torch.compile makes of the `library(...)` of reference.py, under the name of what that calls."""
    return LibraryCall(f"{COMPILED}({name})", kind="compiled")


def compiles(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that is compiled whole for every shape that it meets.

    The compiler logs nothing: where a design fails it takes another one.
    """
    import torch
    from torch._dynamo import config
    from torch._inductor import select_algorithm

    torch._logging.set_logs(dynamo=logging.CRITICAL, inductor=logging.CRITICAL)  # type: ignore[attr-defined]
    select_algorithm.PRINT_AUTOTUNE = False
    config.recompile_limit = config.accumulated_recompile_limit = RECOMPILATIONS
    made: Callable[..., Any] = torch.compile(function, fullgraph=True, dynamic=False, mode=MODE)
    return made


def sum_exactly() -> None:
    """Have torch, in this process, keep sums of 16-bit products in fp32 and take no TF32 for products in fp32.

    What it makes on a GPU is right only then, as a second opinion of the verifier and as a vendor's call.
    """
    import torch

    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False  # of convolutions
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
    torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False


def forget_compiled() -> None:
    """Drop what was compiled in this process; what is kept on disk is loaded when it is called for again."""
    import torch

    torch._dynamo.reset()


def called(name: str, kind: str) -> str:
    """Return a rival by its name, which tells its kind."""
    return name + COMPOSED * (kind == "composed")


def kind_of(name: str) -> Kind:
    """Return the kind of a rival that is told so (`called`)."""
    if name.startswith(COMPILED + "("):
        return "compiled"
    return "converted" if name.endswith(CONVERTED) else "composed" if name.endswith(COMPOSED) else "call"


def kinds_in_words(kinds: Iterable[str], *, untried: bool = False) -> str:
    """Return the kinds of a task's rivals that are no calls of a vendor's, as `composed` or `partly compiled`.

    `untried`: some rivals were not tried, so that one of them may be faster.
    """
    found = sorted(set(kinds))
    others = " and ".join(kind for kind in found if kind != "call")
    told = others if len(found) == 1 else "partly " * bool(others) + others
    return ", ".join(filter(None, (told, UNTRIED * untried)))


def rival_module(name: str) -> Any:
    """Import a module of the extra `rivals`. It raises ImportError, which says where the module comes from."""
    try:
        return importlib.import_module(name)
    except Exception as error:  # noqa: BLE001 the border to packages that may find no CUDA of their version
        said = f"{type(error).__name__}: {error}"
        raise ImportError(f"{name} cannot be imported ({said}); it comes with the extra `rivals`") from None


def direct(name: str, *arguments: str, dtypes: tuple[str, ...] = (), **constants: Any) -> LibraryCall:
    """Return the call of `name`, a function's whole path, with these tensors or scalars in order, and constants."""
    module, _, attribute = name.rpartition(".")

    def prepare() -> Callable[..., Any]:
        found: Callable[..., Any] = getattr(importlib.import_module(module), attribute)
        return found

    def function(prepared: Callable[..., Any], **named: Any) -> Any:
        return prepared(*(named[argument] for argument in arguments), **constants)

    # A function is given the arguments that its signature names.
    named = [Parameter(argument, Parameter.KEYWORD_ONLY) for argument in ("prepared", *arguments)]
    function.__signature__ = Signature(named)  # type: ignore[attr-defined]
    return call(name, function, prepare=prepare, dtypes=dtypes)
