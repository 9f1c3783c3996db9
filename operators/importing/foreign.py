"""The border to a foreign source: what it raises becomes one line, and it computes for as long as it may. Tensors are
found in the dataclasses that it takes and returns, too."""

from __future__ import annotations

import linecache
import signal
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from typing import Any

import torch
from torch.utils import _pytree as pytree

from operators.importing.needed import HERE


class Failed(Exception):
    """A problem cannot be imported; the text is one line."""


class Hopeless(Failed):
    """No other sizes would help."""


class Unrolled(Hopeless):
    """A foreign source calls a function of torch for each of many elements."""


class TooLong(Failed):
    """A foreign source computes for longer than it may."""


@contextmanager
def foreign(seconds: int) -> Iterator[None]:
    """Raise Failed for what a foreign source raises, and where it computes for longer, however busy the machine is."""

    def ring(*_: Any) -> None:
        raise TimeoutError(f"it takes longer than {seconds} s")

    before, left = signal.signal(signal.SIGPROF, ring), signal.setitimer(signal.ITIMER_PROF, seconds)[0]
    try:
        yield
    except Failed:
        raise
    except TimeoutError as error:
        raise TooLong(str(error)) from None
    except ModuleNotFoundError as error:
        raise Hopeless(
            f"it needs the package {error.name}, which is not here: install it beside torch, or name the folder that "
            "it lies in by PYTHONPATH"
        ) from None
    except (FileNotFoundError, PermissionError) as error:
        said = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
        raise Failed(
            f"{place_of(error)}{said}; a source has no files here but its own modules, and no network"
        ) from None
    except (Exception, SystemExit) as error:  # noqa: BLE001 (the border to a foreign source)
        said = str(error).split("While executing")[0]  # what a tracer adds is of no use to a user
        raise Failed(f"{place_of(error)}{type(error).__name__}: {' '.join(said.split())[:250]}") from None
    finally:
        signal.signal(signal.SIGPROF, before)
        signal.setitimer(signal.ITIMER_PROF, left)


def place_of(error: BaseException) -> str:
    """The line of the foreign source in which an error arose, to stand before what is said of it; nothing for one of
    ours."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename == HERE]
    text = linecache.getline(HERE, frames[-1].lineno or 0).strip() if frames else ""
    return f"line {frames[-1].lineno}, `{text[:80]}`: " if frames else ""


def opened(value: Any) -> bool:
    """Whether tensors are among an argument's parts. Dataclasses that hold some are made nodes of torch's trees."""
    if is_dataclass(value) and not isinstance(value, type):
        holds = sum(opened(getattr(value, each.name)) for each in fields(value)) > 0  # each is looked into
        if holds and type(value) not in pytree.SUPPORTED_NODES:
            _made_node(type(value))
        return holds
    parts = value.values() if isinstance(value, Mapping) else value if isinstance(value, tuple | list) else ()
    return isinstance(value, torch.Tensor) or sum(map(opened, parts)) > 0


def _made_node(kind: Any) -> None:
    names = [each.name for each in fields(kind)]

    def made(parts: Any, _: Any) -> Any:
        value = object.__new__(kind)
        for name, part in zip(names, parts, strict=True):
            object.__setattr__(value, name, part)
        return value

    pytree.register_pytree_node(
        kind, lambda value: ([getattr(value, name) for name in names], None), made,
        flatten_with_keys_fn=lambda value: ([(pytree.GetAttrKey(n), getattr(value, n)) for n in names], None),
    )  # fmt: skip


def laid_open(value: Any) -> Any:
    """A result of tuples, lists and tables alone: a dataclass is a table of its fields, a named tuple one without
    names."""
    if isinstance(value, Mapping):
        return {key: laid_open(each) for key, each in value.items()}
    if isinstance(value, tuple | list):
        return (list if isinstance(value, list) else tuple)(map(laid_open, value))
    if is_dataclass(value) and not isinstance(value, type):
        return {each.name: laid_open(getattr(value, each.name)) for each in fields(value)}
    return value
