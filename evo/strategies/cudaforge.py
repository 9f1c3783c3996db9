"""The strategy `cudaforge`: a coder and a judge on one line of versions, ten rounds (CudaForge, arXiv:2511.01884).

Faithful: the coder writes a first kernel; from then on the judge reads the current one, and answers in JSON, with one
critical issue where it fails, and with one bottleneck and one method where it is right, by 24 metrics of Nsight Compute
that were chosen for their correlation with run time (`fitness.profiling.metric_sets.CUDAFORGE`). The coder gets that
judgement and the kernel, and writes the whole file. The judge sees the reference too, the coder of the first kernel
alone. No call sees a history; the latest kernel is always the next one's
parent, and the best of all counts. Judge and coder may be two models (`roles`).

Different, and why:

* The reference is the operator's naive kernel, where the release shows a module of PyTorch.
* The judge, and the coder of the first kernel, are told how far it is from what the machine allows, as all roles that
  choose a change are.
* Its check (one random input, 1e-3) is our verdict: a reproduction found a quarter of its winners cut in precision.
* On devices without these counters, such as the cpu target, the judge is shown what there is.

`faithful` keeps what the release does: no rollback, and the metrics that the judge is shown with the current kernel are
those of the best one, whose file is what its profiler runs. `repaired` goes on from the fastest version once the
current one is correct, so that both are of one kernel.
"""

from __future__ import annotations

from typing import Any

from pydantic import Field

from evo.individual import Individual
from evo.strategies.loop import Recipe
from evo.strategies.published import Cast, CastSettings, PublishedLoop, Variant, fastest, kernel_of


class CudaForgeSettings(CastSettings):
    """Settings of the strategy `cudaforge`."""

    rounds: int = Field(10, ge=1, le=1000)
    """Kernels that the coder is asked for, the first one included."""
    variant: Variant = "faithful"
    """`faithful`: from the latest kernel, with the profile of the best; `repaired`: both of one kernel, the best."""


class CudaForge(PublishedLoop[CudaForgeSettings]):
    """A first kernel, then rounds of judgement and code."""

    Settings = CudaForgeSettings
    name = "cudaforge"
    roles = ("coder", "judge")

    def loop(self, start: Individual, model: str) -> Recipe:
        """See `ModelLoops.loop`."""
        cast = Cast(self, model)
        repaired = self.settings.variant == "repaired"
        seen = set[str]()
        current = yield cast.code("coder", start, template="seed")
        current = current if current.kernel else start
        versions = [current]
        for _ in range(self.settings.rounds - 1):
            if current.correct:
                best = fastest(versions)
                current = best if repaired else current
                yield from self.profiling(best, seen)
                shown: dict[str, Any] = {"profile_of": kernel_of(best).id} if best is not current else {}
                judged = yield cast.words("judge", current, template="judge_optimise", shows="cudaforge", **shown)
            else:
                judged = yield cast.words("judge", current, template="judge_repair")
            if not judged.text:
                continue
            template = "optimise" if current.correct else "repair"
            child = yield cast.code("coder", current, about=[judged], template=template)
            if child.kernel:
                current = child
                versions.append(child)
