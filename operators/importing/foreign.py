"""The border to a foreign source: what it raises becomes one line, and it computes for as long as it may."""

from __future__ import annotations

import linecache
import signal
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from operators.importing.readers import HERE


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
