"""The conditions of a run's verdicts besides its kernels: operators' definitions, and the machine that times them.

A run's kernels are compared with each other and with one baseline, whichever session measured them. A session that
would measure under other conditions is refused: its speedups would be of another problem, or of another machine.
"""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from evo.config import RunConfig
from evo.version import engine_version
from fitness.cpu.cores import groups, processor
from fitness.install import DRIVER, kept_versions
from fitness.targets import GpuModels
from operators.definition.fingerprint import fingerprint
from operators.errors import UserError
from operators.identity import digest

KERNEL_FILES = "which kernel files there are"
"""A search from all of them asks for each of them by name."""
ACCELERATOR = "accelerator_type:"
"""Prefix of Ray's name for a model of GPU that another machine has, which is one word of the model's name."""


@dataclass(frozen=True)
class Conditions:
    """Under which a session measures."""

    engine: str
    """Its version."""
    host: Mapping[str, Any]
    definitions: Mapping[str, Mapping[str, str]] | None
    """By operator: see `operators.definition.fingerprint`. None: not known."""


def conditions(config: RunConfig, gpus: GpuModels) -> Conditions:
    """Those of a session that begins now. Raises OperatorError, and UserError for GPUs that cannot be compared."""
    if len(gpus.names) > 1:
        raise UserError(
            f"the GPUs are of different models ({', '.join(map(_bare, gpus.names))}), their timings would not compare: "
            "choose those of one model with CUDA_VISIBLE_DEVICES, or with machines of one model in the cluster"
        )
    definitions: dict[str, dict[str, str]] = {}
    names: dict[str, dict[str, None]] = {}
    for operator, task in config.tasks():
        definitions[operator.name] = fingerprint(operator, target=config.target, workload_set=config.workload_set)
        names.setdefault(operator.name, {}).update(dict.fromkeys(config.ancestor_names(operator, task)))
    if config.ancestors == "all":
        for name, files in names.items():
            definitions[name][KERNEL_FILES] = digest(*files)
    return Conditions(engine_version(), host(gpus, config.target), definitions)


def host(gpus: GpuModels, target: str) -> dict[str, object]:
    """This machine, and the versions of the packages that a target's rivals are of; `gpus` are those that kernels run
    on."""
    found: dict[str, object] = {
        "machine": platform.machine(),
        "system": platform.platform(),
        "python": platform.python_version(),
        "cpus": len(os.sched_getaffinity(0)),
        "processor": processor(),
        "versions": kept_versions(target, gpus.driver),
    }
    return found | ({"gpus": list(gpus.names)} if gpus.names else {})


def check_tasks(asked: Collection[str], config: RunConfig) -> None:
    """Raise UserError unless the operators still offer the tasks that a run has asked for."""
    offered = [str(task) for _, task in config.tasks()]
    if lost := sorted(set(asked) - set(offered)):
        raise UserError(
            f"the run's operators are others by now: it has {', '.join(lost)}, they offer {', '.join(offered)}; "
            "restore their names and dtypes"
        )


def check_same(then: Conditions, now: Conditions, config: RunConfig, *, run: str) -> list[str]:
    """Notes for the user, each a sentence, on what differs and decides no verdict, or is not known.

    Raises UserError for what does.
    """
    start = f"start a new run; `evo best {run} --export FILE` beside its naive kernel gives it the best of this one"
    if changes := list(_other_definitions(then.definitions, now.definitions)):
        raise UserError(
            f"run {run}: its operators changed since it began ({'; '.join(changes)}), old and new verdicts would not "
            f"compare: restore them, or {start}"
        )
    if changes := list(_other_hardware(then.host, now.host, config)):
        raise UserError(
            f"run {run}: it began on another machine ({'; '.join(changes)}), old and new timings would not compare: "
            f"resume it there, or {start}"
        )
    return list(_notes(then, now))


def _other_definitions(
    then: Mapping[str, Mapping[str, str]] | None, now: Mapping[str, Mapping[str, str]] | None
) -> Iterator[str]:
    """The definitions that have changed since the run began; those that came later are in no use yet."""
    for operator, parts in (then or {}).items():
        current = (now or {}).get(operator, {})
        for name, value in parts.items():
            if current.get(name) != value:
                yield f"{operator}: {name}" + ("" if name in current else " is gone")


def _other_hardware(then: Mapping[str, Any], now: Mapping[str, Any], config: RunConfig) -> Iterator[str]:
    if config.target == "cuda":
        if then.get("gpus") and not _same_models(then["gpus"], now.get("gpus", ())):
            yield f"{', '.join(then['gpus'])}, here {', '.join(now.get('gpus', ())) or 'none'}"
        return
    if then.get("processor") and then["processor"] != now["processor"]:
        yield f"{then['processor']}, here {now['processor']}"
    threads = [len(groups(config.threads, range(place["cpus"]))[0]) for place in (then, now) if place.get("cpus")]
    if len(set(threads)) > 1:
        yield f"a kernel had {threads[0]} threads, here {threads[1]}"


def _same_models(then: Collection[str], now: Collection[str]) -> bool:
    if any(name.startswith(ACCELERATOR) for name in (*then, *now)):
        words = [{word for name in names for word in re.split(r"[\s-]+", _bare(name))} for names in (then, now)]
        return words[0] <= words[1] or words[1] <= words[0]
    return set(then) == set(now)


def _bare(name: str) -> str:
    return name.removeprefix(ACCELERATOR)


def _notes(then: Conditions, now: Conditions) -> Iterator[str]:
    if then.definitions is None:
        yield "the run was stopped before it noted its operators: whether they are as they were is not known"
    before, after = (place.get("versions", {}) for place in (then.host, now.host))
    for name, version in after.items():
        if before.get(name, version) != version:
            yield f"{'the GPU driver' if name == DRIVER else name} is {version} now; the run began with {before[name]}"
    if then.engine.split()[0] != now.engine.split()[0]:
        yield f"this is kernel-evo {now.engine}; the run began with {then.engine}"
