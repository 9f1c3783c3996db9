"""The strategy `cutegen`: one kernel in CuTe, generated, tested and refined step by step (CuTeGen, arXiv:2604.01489).

Faithful: a first, simple and correct kernel in CuTe, after two worked examples; then up to ten steps, of which each
applies exactly one change that is not there yet, from the menu of the kernel's class, which the model names first. A
kernel that fails is diagnosed in words and patched, five times at most. A step's kernel is written anew up to three
times; the first one is not, as in the release: its debugging begins again, up to three times, from the earliest of its
best versions (compiled before not compiled). Patches and steps are edits of numbered lines. The roles that revise see
the reference too, and the diagnoser the guide to debugging. The parent is the last kernel that passed, slower or not; a
step that leads to none ends the line. Profiles (Nsight Compute's basic set, with rules that read it) are shown late: in
the release's script after 2 to 6 steps, by class, while structure is still open.

Different, and why:

* Menus and guide say all that the release's say, in fewer words (1,490 tokens for its 2,310, and 1,590 for its 4,710),
  but for what has no meaning here: code around the kernel in PyTorch, the test harness and its memory, the form of
  answers. Those for the cpu are ours.
* The reference is the operator's naive kernel, where the release shows a module of PyTorch. Roles that write kernels
  are told the form of a kernel file, which the release's have from their examples.
* Examples and kernels have plans in place of host code, and the tests (ten seeds, 1e-2) are our verdict. A timeout is a
  failure like others: our evaluator repeats what a machine may have caused. On Hopper the example of TMA and wgmma that
  all others are shown is the third one.
* The optimiser is told how far the kernel is from what the machine allows, as all roles that choose a change are. The
  first kernel is to be simple, and its generator is not.
* Every candidate is judged once and charged, those of the debugging included. The kernel is profiled where a prompt
  will show it, not after every pass.
* On the cpu target, or with `language = plain`, kernels are plain C++ or CUDA C++, as in the paper's ablation.

`faithful` keeps what the release does: the last patch is asked for and paid, and never tested. `repaired` tests it.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import Any, Literal

from pydantic import Field

from evo.individual import Individual
from evo.strategies.loop import Recipe, Step
from evo.strategies.published import Cast, CastSettings, PublishedLoop, Variant, fastest
from mutators.line_edits import LINES
from mutators.prompts.informed import CUTE
from operators.definition.spec import Operator

STEPS_BEFORE_PROFILE: Mapping[str, int] = {"product": 6, "convolution": 6, "reduction": 5, "loss": 3, "elementwise": 2}
"""By class of kernel, the steps without a profile (`scripts/run_profiled_sample.py` of the release)."""
CLASSES: Mapping[str, str] = {
    "dense": "product", "sparse": "product", "llm": "product", "stencil": "convolution", "normalization": "reduction",
    "algorithmic": "reduction", "loss": "loss", "activation": "elementwise", "tensor": "elementwise",
}  # fmt: skip
"""The class of a family's operators; of families that are not here it is `product`, the latest."""
OTHERS: Mapping[str, str] = {
    "vector_add": "elementwise", "matrix_scalar_mul": "elementwise", "dot_product": "reduction",
    "diagonal_matrix_mul": "elementwise",
    "silu_and_mul": "elementwise", "swiglu": "elementwise", "rope": "elementwise", "merge_attn_states": "elementwise",
    "fused_add_rms_norm": "reduction", "high_order_contraction": "product",
}  # fmt: skip
"""The same of operators that differ from their family."""


class CuTeGenSettings(CastSettings):
    """Settings of the strategy `cutegen`."""

    depth: int = Field(10, ge=0, le=1000)
    """Steps after the first kernel."""
    tries: int = Field(3, ge=1, le=100)
    """Times that the kernel of one step is written anew until one passes."""
    fixes: int = Field(5, ge=0, le=100)
    """Diagnoses and patches of one kernel that fails."""
    profile_after: int | None = Field(None, ge=0)
    """Steps without a profile; where it is not said, by class of kernel, 2 to 6. The first release had 2 for all, the
    second 7, and 0 is none."""
    parent: Literal["last", "best"] = "last"
    """Which kernel that passed the next step starts from."""
    language: Literal["cute", "plain"] = "cute"
    """Language that kernels are written in on cuda."""
    variant: Variant = "faithful"
    """`faithful`: the last patch is never tested; `repaired`: it is."""


class CuTeGen(PublishedLoop[CuTeGenSettings]):
    """A first kernel, then one change at a time."""

    Settings = CuTeGenSettings
    name = "cutegen"
    roles = ("generator", "optimiser", "diagnoser", "patcher")

    def loop(self, start: Individual, model: str) -> Recipe:
        """See `ModelLoops.loop`."""
        cast = Cast(self, model)
        seen = set[str]()
        passed = [start]
        for depth in range(self.settings.depth + 1):
            parent = passed[-1] if self.settings.parent == "last" else fastest(passed)
            is_late = depth > self._steps_before_profile()
            if is_late:
                yield from self.profiling(parent, seen)
            child = yield from self._passed(parent, cast, depth=depth, shows="cutegen" if is_late else "none")
            if not child.correct:
                return
            passed.append(child)

    def _passed(
        self, parent: Individual, cast: Cast, *, depth: int, shows: str
    ) -> Generator[Step, Individual, Individual]:
        """The kernel of one step that passed, or the last one that failed."""
        child: Individual | None = None
        for _ in range(self.settings.tries):
            if depth > 0:
                child = yield cast.code("optimiser", parent, shows=shows, **self._dialect(), form=LINES)
            elif child is None or child.kernel is None:
                child = yield cast.code("generator", parent, **self._dialect())
            child = yield from self._patched(child, parent, cast)
            if child.correct:
                break
        assert child
        return child

    def _patched(self, child: Individual, parent: Individual, cast: Cast) -> Generator[Step, Individual, Individual]:
        """The outcome of a kernel that is diagnosed and patched as long as it fails: the earliest of the best."""
        faithful = self.settings.variant == "faithful"
        versions = [child]
        for number in range(1, self.settings.fixes + 1):
            if child.correct or child.kernel is None:
                break
            found = yield cast.words("diagnoser", child, **self._dialect())
            if faithful and number == self.settings.fixes:
                yield cast.words("patcher", child, about=[found], **self._dialect(), form=LINES, as_code=True)
                break
            patched = yield cast.code("patcher", child, before=parent, about=[found], **self._dialect(), form=LINES)
            child = patched if patched.kernel else child
            versions.append(child)
        return max(versions, key=lambda each: (each.correct, each.built))

    def _dialect(self) -> dict[str, Any]:
        is_cute = self.settings.language == CUTE and self.context.task.target == "cuda"
        return {"dialect": CUTE} if is_cute else {}

    def _steps_before_profile(self) -> int:
        chosen = self.settings.profile_after
        return STEPS_BEFORE_PROFILE[class_of(self.context.operator)] if chosen is None else chosen


def class_of(operator: Operator) -> str:
    """Return the class of an operator's kernels, as far as it decides when profiles help."""
    return OTHERS.get(operator.name, CLASSES.get(operator.family, "product"))
