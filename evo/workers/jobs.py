"""What evaluation workers do for a dialogue about a draft; a search asks for more (`evo.workers.pool.Pool`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from fitness.base import Anchor, Built, Checked
from fitness.evaluation import Evaluation, Timing
from fitness.profiling import Profile
from operators.definition.spec import Task
from operators.kernel import Kernel


class Jobs(Protocol):
    """Methods of `fitness.base.Fitness`, done elsewhere."""

    async def build(self, task: Task, kernel: Kernel) -> Built | Evaluation:
        """See `fitness.base.Builder`."""
        ...

    async def emulate(self, task: Task, kernel: Kernel) -> Checked:
        """See `fitness.base.Builder`."""
        ...

    async def spot_check(self, task: Task, kernel: Kernel) -> Checked:
        """See `fitness.base.Fitness`."""
        ...

    async def screen(self, task: Task, kernel: Kernel, anchor: Anchor, *, race: bool) -> Evaluation:
        """See `fitness.base.Fitness`."""
        ...

    async def profile(self, task: Task, kernel: Kernel, timings: Sequence[Timing]) -> Profile:
        """See `fitness.base.Fitness`."""
        ...
