"""Every canary of the cuda target, by class, and what their tests share."""

from __future__ import annotations

from collections.abc import Mapping

from tests.gpu import canaries, conduct, marks, public, results
from tests.gpu.canaries import Canary


def _kinds() -> dict[str, dict[str, Canary]]:
    found: dict[str, dict[str, Canary]] = {}
    for module in (canaries, marks, results, conduct, public):
        for kind, group in module.KINDS.items():
            found[kind] = {**found.get(kind, {}), **group}
    return found


KINDS: Mapping[str, Mapping[str, Canary]] = _kinds()
"""By class, most of which the red team of the cpu target has too."""
CANARIES = {name: canary for kind in KINDS.values() for name, canary in kind.items()}
STRUCTURAL = sorted(name for name, canary in CANARIES.items() if canary.structural)
RUNNING = sorted(name for name, canary in CANARIES.items() if not canary.structural)
_TWINS = {(canary.operator, canary.twin): name for name, canary in CANARIES.items() if canary.twin}
TWINS = sorted(_TWINS.values())
"""A canary for each twin."""
