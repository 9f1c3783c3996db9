"""Tools of a workbench: the arguments they take, and what they answer, in words."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from difflib import unified_diff
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from fitness.evaluation import Evaluation, Timing, interval95
from fitness.judging.base import Built, Checked
from fitness.profiling.profiles import Profile
from fitness.words import digits, estimate, flags, gain, in_words, of_bound, time_us
from mutators.bench import Tool
from mutators.prompts import MAX_MESSAGE, shortened, untrusted
from mutators.prompts.informed import facts
from operators.definition.reading import first_problem
from operators.identity import short
from operators.kernel import Kernel

MOST_SOURCE = 256_000
"""Characters of a kernel file."""
MOST_ARGUMENTS = 2 * MOST_SOURCE
NAMES = "`start` (the kernel that you were given), `best`, `naive`, or the first digits of a kernel's id"
KernelId = Annotated[str, Field(min_length=1, max_length=80, description=NAMES)]


def _tunables(values: dict[str, int]) -> dict[str, int]:
    if wrong := [name for name in values if not name.isidentifier()]:
        raise ValueError(f"{ascii(wrong[0])[:80]} is no name of a tunable")
    if any(abs(value) >= 2**63 for value in values.values()):
        raise ValueError("values of tunables are integers of 64 bits")
    return values


class Arguments(BaseModel):
    """Arguments that all have in common. The docstring of each is the description of its tool."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class ReadKernel(Arguments):
    """Read a kernel: its file with the plan, its tunables' values, and what is known of its verdict and times."""

    kernel: KernelId = "start"


class ReadLineage(Arguments):
    """Read how a kernel came to be, from the first ancestor on: what each step changed, and what that brought. Without
    a kernel: the fastest kernels of the search."""

    kernel: Annotated[str, Field(max_length=80, description=NAMES)] = ""
    limit: Annotated[int, Field(ge=1, le=50)] = 12


class ReadLessons(Arguments):
    """Read what this search has taught: the changes that gained most, those that lost, and the commonest failures."""

    limit: Annotated[int, Field(ge=1, le=30)] = 8


class ReadOperator(Arguments):
    """Read what is to be computed: the operator's formula, arguments, types, sizes that are timed, and accuracy."""


class Docs(Arguments):
    """Read how a kernel file is written: the plan in its header, what the plan can say, and what the code may use."""


class BuildDraft(Arguments):
    """Write a kernel file and compile it. Give either the whole file or edits of another kernel's, or other values of
    its tunables alone. It costs nothing but time, and says the draft's id, by which other tools know it, with the
    compiler's facts or its errors. A draft that does not compile can be edited too."""

    source: Annotated[str, Field(max_length=MOST_SOURCE, description="the whole file, header first")] = ""
    edits: Annotated[
        str,
        Field(
            max_length=MOST_SOURCE,
            description="edits of the file of `base`, each as <<<<<<< SEARCH, lines copied exactly, =======, the lines "
            "that replace them, >>>>>>> REPLACE",
        ),
    ] = ""
    base: KernelId = "start"
    values: Annotated[
        dict[str, int],
        AfterValidator(_tunables),
        Field(max_length=64, description="tunables that are not to have their default, by name"),
    ] = {}


class Check(Arguments):
    """Run a kernel on a few small shapes with inputs of several distributions, and compare its results with the
    reference. Nothing is timed; it costs no evaluation. Use it before `judge` and `submit`."""

    kernel: KernelId


class Judge(Arguments):
    """Verify a kernel and time it beside the best one known: its speedup with an interval, and the time of every
    workload. It costs one evaluation of the budget."""

    kernel: KernelId
    workloads: Annotated[
        list[str], Field(max_length=64, description="names of workloads whose times are wanted; none: all of them")
    ] = []


class ProfileKernel(Arguments):
    """Ask a profiler what limits a kernel that is correct and was timed, by `judge` or by the search."""

    kernel: KernelId


class Diff(Arguments):
    """Compare the files of two kernels: what the newer one changes, line by line."""

    old: KernelId = "start"
    new: KernelId


Change = Annotated[str, Field(min_length=1, max_length=400, description="what it changes, in at most 15 words")]


class Submit(Arguments):
    """Hand in a draft: it becomes a child of the search, is verified in full, and competes by its times."""

    kernel: KernelId
    change: Change


ARGUMENTS: Mapping[str, type[Arguments]] = {
    "read_kernel": ReadKernel, "lineage": ReadLineage, "lessons": ReadLessons, "operator": ReadOperator, "docs": Docs,
    "build": BuildDraft, "check": Check, "judge": Judge, "profile": ProfileKernel, "diff": Diff, "submit": Submit,
}  # fmt: skip
"""By the name of the tool."""


class ArgumentError(Exception):
    """Arguments that a tool does not take; the text is one line for who wrote them."""


def tool(name: str, kinds: Mapping[str, type[Arguments]] = ARGUMENTS) -> Tool:
    """Return the tool of this name, one of `kinds`, with the schema of its arguments."""
    kind = kinds[name]
    schema = kind.model_json_schema()
    for property_ in schema.get("properties", {}).values():
        property_.pop("title", None)
    parameters = {"type": "object", "properties": schema.get("properties", {}), "additionalProperties": False}
    if required := schema.get("required"):
        parameters["required"] = required
    return Tool(name, " ".join((kind.__doc__ or "").split()), parameters)


def parsed(
    name: str, arguments: str | Mapping[str, Any], kinds: Mapping[str, type[Arguments]] = ARGUMENTS
) -> Arguments:
    """Return checked arguments, of JSON or of what JSON stands for. It raises ArgumentError."""
    if isinstance(arguments, str):
        if len(arguments) > MOST_ARGUMENTS:
            raise ArgumentError(f"arguments of {len(arguments)} characters; at most {MOST_ARGUMENTS} are read")
        try:
            arguments = json.loads(arguments or "{}")
        except (ValueError, RecursionError) as error:
            raise ArgumentError(f"the arguments of `{name}` are not valid JSON: {str(error)[:200]}") from None
    if not isinstance(arguments, Mapping):
        raise ArgumentError(f"the arguments of `{name}` must be a JSON object")
    try:
        return kinds[name].model_validate(dict(arguments))
    except ValidationError as error:
        known = ", ".join(kinds[name].model_fields) or "none"
        raise ArgumentError(f"{first_problem(error)}; arguments of `{name}` are: {known}") from None


MOST_CHARACTERS = 24_000
"""The longest text that a tool returns, in characters."""
MOST_FILE = 20_000
"""The longest kernel file in it, in characters; what does not fit is left out of its middle."""
MOST_VALUES = 2_000
"""The longest text on the values of a kernel's tunables, in characters."""
MOST_CHANGE = 160
MOST_ROWS = 64


def file_of(kernel: Kernel) -> str:
    """Return a kernel's file, and the values of its tunables that were set, whose names are its author's too."""
    values = shortened(", ".join(f"{name} = {value}" for name, value in kernel.values.items()), MOST_VALUES)
    told = f"\nTunables:\n{untrusted(values)}" if values else ""
    return untrusted(shortened(kernel.source, MOST_FILE), "cpp") + told


def built(kernel: Kernel, found: Built | Evaluation) -> str:
    """Return what a build came to."""
    if isinstance(found, Evaluation):
        reason = untrusted(shortened(found.message or "without a word", MAX_MESSAGE))
        return f"Draft {short(kernel.id)} was not built: {in_words(found.status)}.\n{reason}"
    said = "; ".join(f"{name} {value}" for name, value in facts(found.facts).items())
    told = f"\nThe compiler's facts:\n{untrusted(shortened(said, MAX_MESSAGE))}" if said else ""
    return f"Draft {short(kernel.id)} is built.{told}"


def checked(kernel: Kernel, look: Checked, *, emulated: bool) -> str:
    """Return what a look at a kernel came to."""
    where = (look.scope or "on a few small shapes") + (" (emulated on a CPU)" if emulated else "")
    if look.rejection:
        reason = untrusted(shortened(look.rejection.message or "without a word", MAX_MESSAGE))
        return f"Draft {short(kernel.id)} fails {where}: {in_words(look.rejection.status)}.\n{reason}"
    worst = max((error.worst_ratio for error in look.errors), default=0.0)
    return f"Draft {short(kernel.id)} is right {where}; its worst error is at {of_bound(worst)}."


def verdict(evaluation: Evaluation, *, workloads: Sequence[str] = ()) -> str:
    """Return a verdict with its times, of these workloads alone if any are named."""
    lines = []
    if evaluation.log_speedup is None:
        lines.append(f"Verdict: {in_words(evaluation.verdict)} ({evaluation.level}).")
    else:
        found = interval95(evaluation.log_speedup, evaluation.log_speedup_se or 0.0)
        told = gain(*found, evaluation.level, flags(evaluation.facts))
        lines.append(f"It is correct. Over the naive kernel: {told}.")
    if evaluation.duplicate_of:
        lines.append(f"It is the same program as kernel {short(evaluation.duplicate_of)}, whose verdict this is.")
    if evaluation.message:
        lines.append(untrusted(shortened(evaluation.message, MAX_MESSAGE)))
    if evaluation.anchor_id and evaluation.log_ratio is not None:
        paired = estimate(*interval95(evaluation.log_ratio, evaluation.log_ratio_se or 0.0))
        lines.append(f"Timed beside kernel {short(evaluation.anchor_id)}, it was {paired} times as fast as that.")
    lines += _times(evaluation.timings, workloads)
    if evaluation.errors:
        lines.append(f"Its worst error is at {of_bound(max(e.worst_ratio for e in evaluation.errors))}.")
    return "\n".join(lines)


def profiled(found: Profile) -> str:
    """Return what a profiler says."""
    notes = untrusted("\n".join(found.notes) or "nothing")
    return f"Bottleneck: {found.bottleneck.value if found.bottleneck else 'unclear'}\n{notes}"


def differences(old: Kernel, new: Kernel) -> str:
    """Return what the newer kernel changes of the older one."""
    before, after = (kernel.source.splitlines() for kernel in (old, new))
    lines = list(unified_diff(before, after, short(old.id), short(new.id), lineterm="", n=3))
    if dict(old.values) != dict(new.values):
        lines.append(f"tunables: {dict(old.values)} before, {dict(new.values)} now")
    return untrusted(shortened("\n".join(lines), MOST_FILE), "diff") if lines else "They are the same."


def table(rows: Iterable[Mapping[str, Any]]) -> str:
    """Return one line for each row of `lineage`, the changes that their authors named among them."""
    return untrusted("\n".join(map(_line, rows)) or "nothing yet")


def bounded(text: str) -> str:
    """Return at most about MOST_CHARACTERS of a text."""
    return shortened(text, MOST_CHARACTERS)


def _line(row: Mapping[str, Any]) -> str:
    names = ("speedup", "speedup_low", "speedup_high", "level", "flagged")
    speedup = f", {gain(*(row[name] for name in names))}" if row.get("speedup") is not None else ""
    rise = f", {digits(math.exp(row['gain']))} times as fast as its parent" if row.get("gain") is not None else ""
    change = shortened(" ".join((row.get("description") or "").split()), MOST_CHANGE)
    status = in_words(row["status"] or "not judged yet")
    how = f" by {row['mutator']}" if row.get("mutator") else ""
    message = f": {shortened(' '.join(row['message'].split()), MOST_CHANGE)}" if row.get("message") else ""
    return f"{short(row['kernel_id'])}{how}: {change or 'no words'}; {status}{speedup}{rise}{message}"


def _times(timings: Sequence[Timing], wanted: Sequence[str]) -> list[str]:
    shown = [t for t in timings if not wanted or t.workload in wanted][:MOST_ROWS]
    return [
        f"- {t.workload}: {time_us(t.latency_us)}, {estimate(*interval95(t.log_ratio, t.log_ratio_se))} times as fast"
        for t in shown
    ]
