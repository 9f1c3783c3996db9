"""Failing children of language models that may be mended."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from evo.individual import Individual
from evo.strategies.archive import Elite
from operators.kernel import Kernel

FAILURES_KEPT = 16
"""Failing kernels that wait for a repair; the latest."""


@dataclass(frozen=True)
class Failure:
    """A failing child of a model that may be mended."""

    kernel: Kernel
    parent: Elite
    """The good kernel that it was made from."""
    tries: int = 0


class Repairs:
    """Failures that wait for a repair."""

    def __init__(self, most_tries: int) -> None:
        """`most_tries`: requests that may be spent on one failing child, what becomes of it included."""
        self._most_tries = most_tries
        self._waiting: deque[Failure] = deque(maxlen=FAILURES_KEPT)

    def __bool__(self) -> bool:
        return bool(self._waiting)

    @property
    def any_untried(self) -> bool:
        """Whether one waits whose repair nobody tried yet."""
        return any(failure.tries == 0 for failure in self._waiting)

    def oldest(self, *, untried: bool) -> Failure:
        """Return the one that has waited longest, of all or of those whose repair nobody tried yet."""
        return next(f for f in self._waiting if not (untried and f.tries))

    def take(self, kernel_id: str) -> Failure | None:
        """Take out the failure that is this kernel, the one that has waited longest; None where there is none."""
        failure = next((failure for failure in self._waiting if failure.kernel.id == kernel_id), None)
        if failure:
            self._waiting.remove(failure)
        return failure

    def back(self, failure: Failure) -> None:
        """Let one wait again whose repair came to nothing for no fault of its own."""
        self._waiting.append(failure)

    def consider(self, individual: Individual, parent: Elite, mended: Failure | None) -> None:
        """Keep what a model made of a good kernel and what failed, as long as it has tries left.

        `mended` is the failure that the model was to mend, if it was.
        """
        tries = mended.tries + 1 if mended else 0
        if tries >= self._most_tries:
            return
        from mutators.asking.repair import REPAIRABLE  # with its templates: not needed by runs without models

        kernel, evaluation = individual.kernel, individual.evaluation
        if kernel and evaluation and individual.fresh and evaluation.verdict in REPAIRABLE:
            self._waiting.append(Failure(kernel, parent, tries))
        elif mended and kernel is None:  # the model had no answer: it may be asked again
            self._waiting.append(Failure(mended.kernel, parent, tries))
