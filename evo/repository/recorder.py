"""The `sitecustomize` of a recorded program: it notes the arguments of each call of one function.

It runs in the user's program, with the standard library alone, and changes nothing there: the interpreter tells it of
calls.
`EVO_RECORD_FILE`, `EVO_RECORD_NAME` and `EVO_RECORD_FOLDER` name the function and the place of its record.
"""

from __future__ import annotations

import atexit
import json
import os
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

FILE, NAME = os.environ.get("EVO_RECORD_FILE", ""), os.environ.get("EVO_RECORD_NAME", "")
FOLDER = os.environ.get("EVO_RECORD_FOLDER", "")
MOST_KINDS = 2000
"""Different calls that are kept; further ones are counted as others."""
FAULTS = (RuntimeError, TypeError, ValueError, AttributeError, LookupError, OSError)
"""Exceptions of tensors that have no values or sizes, such as those of a tracer, and of a full disk."""
WITH_MORE = 12  # CO_VARARGS | CO_VARKEYWORDS


class Recorder:
    """The calls of the function in this process, by what tells them apart."""

    def __init__(self) -> None:
        self.kinds: dict[str, dict[str, Any]] = {}
        self.others = 0
        self.paths: dict[str, str] = {}
        self.lock = threading.RLock()
        self.is_busy = threading.local()

    def on_event(self, frame: FrameType, event: str, _: Any) -> None:
        """Note a call; for every other event return at once."""
        code = frame.f_code
        if event != "call" or code.co_name != NAME or getattr(self.is_busy, "now", False):
            return
        if self.paths.get(code.co_filename) is None:
            self.paths[code.co_filename] = os.path.realpath(code.co_filename)
        if self.paths[code.co_filename] != FILE or getattr(code, "co_qualname", NAME) != NAME:
            return
        self.is_busy.now = True  # describing tensors calls Python, too
        try:
            self.note(code, frame.f_locals)
        except FAULTS:  # the program goes on as it would alone
            self.others += 1
        finally:
            self.is_busy.now = False

    def note(self, code: CodeType, values: Mapping[str, Any]) -> None:
        """Count the call of these arguments; values of tensors are looked at in the first of its kind."""
        torch = sys.modules.get("torch")
        count = code.co_argcount + code.co_kwonlyargcount
        names = code.co_varnames[:count]
        told = {name: described(values[name], torch) for name in names}
        for name in code.co_varnames[count : count + bin(code.co_flags & WITH_MORE).count("1")]:
            if values[name]:
                told[name] = {"object": "further arguments"}
        grad = bool(torch and torch.is_grad_enabled() and any(t.requires_grad for t in tensors(values, names, torch)))
        key = json.dumps([told, grad], sort_keys=True)
        with self.lock:
            if key in self.kinds:
                self.kinds[key]["count"] += 1
                return
            if len(self.kinds) >= MOST_KINDS:
                self.others += 1
                return
            ranged = {
                name: described(values[name], torch, ranges=True) if name in names else told[name] for name in told
            }
            only = list(code.co_varnames[code.co_argcount : count])
            self.kinds[key] = {"count": 1, "grad": grad, "arguments": ranged, "keyword_only": only}
            self.write()

    def write(self) -> None:
        """Write the record of this process: a child that is ended by force has told what it met first."""
        with self.lock:
            text = json.dumps({"calls": list(self.kinds.values()), "others": self.others})
            made = Path(FOLDER, f"{os.getpid()}.new")
            made.write_text(text, encoding="utf-8")
            made.replace(made.with_suffix(".json"))

    def forget(self) -> None:
        """Begin anew in a forked child: its parent tells of the calls before."""
        self.kinds, self.others, self.lock = {}, 0, threading.RLock()


def tensors(values: Mapping[str, Any], names: Iterable[str], torch: Any) -> Iterator[Any]:
    """The tensors among arguments, and those in lists and tables of these."""
    waiting = [values[name] for name in names]
    while waiting:
        value = waiting.pop()
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, (list, tuple)):
            waiting.extend(value)
        elif isinstance(value, dict):
            waiting.extend(value.values())


def described(value: Any, torch: Any, ranges: bool = False) -> dict[str, Any]:
    """An argument as JSON."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return {"float": str(value)} if isinstance(value, float) and value - value != 0 else {"value": value}
    if isinstance(value, (list, tuple)):
        kind = "tuple" if isinstance(value, tuple) else "list"
        return {kind: [described(each, torch, ranges) for each in value]}
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        return {"dict": {key: described(each, torch, ranges) for key, each in value.items()}}
    if torch is None:
        return {"object": type(value).__name__}
    if isinstance(value, torch.dtype):
        return {"torch": str(value)[len("torch.") :]}
    if not isinstance(value, torch.Tensor) or value.layout != torch.strided:
        return {"object": type(value).__name__}
    told = {
        "shape": list(map(int, value.shape)), "stride": list(map(int, value.stride())),
        "dtype": str(value.dtype)[len("torch.") :], "device": value.device.type, "dense": value.is_contiguous(),
    }  # fmt: skip
    return {**told, **spread(value.detach(), torch)} if ranges and value.numel() else told


def spread(value: Any, torch: Any) -> dict[str, float]:
    """The range of a tensor's values; of numbers with a point also mean and deviation."""
    if value.is_cuda and torch.cuda.is_current_stream_capturing():
        return {}
    try:
        with torch.no_grad():
            if not value.is_floating_point():
                return {"low": int(value.min()), "high": int(value.max())} if value.dtype != torch.bool else {}
            finite = value.float()
            finite = finite[torch.isfinite(finite)]
            if not finite.numel():
                return {}
            deviation = float(finite.std()) if finite.numel() > 1 else 0.0
            low, high = float(finite.min()), float(finite.max())
            return {"low": low, "high": high, "mean": float(finite.mean()), "std": deviation}
    except FAULTS:
        return {}


def following() -> None:
    """Execute the `sitecustomize` that this one stands before, if there is one."""
    from importlib.machinery import PathFinder

    here = Path(__file__).resolve().parent
    spec = PathFinder.find_spec("sitecustomize", [path for path in sys.path if Path(path).resolve() != here])
    if spec is not None and spec.loader is not None and spec.origin != __file__:
        import importlib.util

        spec.loader.exec_module(importlib.util.module_from_spec(spec))


def begin() -> None:
    """Watch this process, its threads and its forked children."""
    recorder = Recorder()
    atexit.register(recorder.write)
    os.register_at_fork(after_in_child=recorder.forget)
    threading.setprofile(recorder.on_event)
    sys.setprofile(recorder.on_event)


if __name__ == "sitecustomize" and FOLDER:
    following()
    begin()
