"""The arguments of the tools: checked when they arrive, and described by JSON schemas."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from mutators.bench import Tool
from operators.definition.reading import first_problem

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
    """What all have in common. The docstring of each is the description of its tool."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class ReadKernel(Arguments):
    """Read a kernel: its file with the plan, its tunables' values, and what is known of its verdict and times."""

    kernel: KernelId = "start"


class Lineage(Arguments):
    """Read how a kernel came to be, from the first ancestor on: what each step changed, and what that brought. Without
    a kernel: the fastest kernels of the search."""

    kernel: Annotated[str, Field(max_length=80, description=NAMES)] = ""
    limit: Annotated[int, Field(ge=1, le=50)] = 12


class Lessons(Arguments):
    """Read what this search has taught: the changes that gained most, those that lost, and the commonest failures."""

    limit: Annotated[int, Field(ge=1, le=30)] = 8


class ReadOperator(Arguments):
    """Read what is to be computed: the operator's formula, arguments, types, sizes that are timed, and accuracy."""


class Docs(Arguments):
    """Read how a kernel file is written: the plan in its header, what the plan can say, and what the code may use."""


class Build(Arguments):
    """Write a kernel file and compile it. Give either the whole file or edits of another kernel's. It costs nothing
    but time, and says the draft's id, by which other tools know it, with the compiler's facts or its errors. A draft
    that does not compile can be edited too."""

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


class Submit(Arguments):
    """Hand in a draft: it becomes a child of the search, is verified in full, and competes by its times."""

    kernel: KernelId
    change: Annotated[str, Field(min_length=1, max_length=400, description="what it changes, in at most 15 words")]


ARGUMENTS: Mapping[str, type[Arguments]] = {
    "read_kernel": ReadKernel, "lineage": Lineage, "lessons": Lessons, "operator": ReadOperator, "docs": Docs,
    "build": Build, "check": Check, "judge": Judge, "profile": ProfileKernel, "diff": Diff, "submit": Submit,
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
            raise ArgumentError(f"the arguments are not valid JSON: {str(error)[:200]}") from None
    if not isinstance(arguments, Mapping):
        raise ArgumentError("the arguments must be a JSON object")
    try:
        return kinds[name].model_validate(dict(arguments))
    except ValidationError as error:
        known = ", ".join(kinds[name].model_fields) or "none"
        raise ArgumentError(f"{first_problem(error)}; arguments of `{name}` are: {known}") from None
