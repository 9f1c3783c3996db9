"""The keys that a kernel file's header may have, with what they mean: what `operators.plan.reading` checks against."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from operators.plan.tensor_map import L2_PROMOTIONS, OOB_FILLS, SWIZZLES


@dataclass(frozen=True)
class Key:
    """One key of a table."""

    type: str
    meaning: str
    default: str | None = None
    """None: it must be there."""


TOP: Mapping[str, Key] = {
    "requires": Key("condition", "What dims and tunables must fulfil; elsewhere the kernel is `unsupported`.", "1"),
    "deterministic": Key(
        "true or false",
        "Whether results are bit-equal from run to run; false (atomic sums in any order) is held to the error bounds.",
        "true",
    ),
    "zero": Key(
        "list of names",
        'Outputs and buffers that are cleared before the first launch; {name = "y", when = "n > 9"} only if it holds.',
        "[]",
    ),
    "unwritten": Key(
        "list of names",
        "Functions that are left to write; a kernel with any is refused before it is compiled. `evo import` writes it.",
        "[]",
    ),
    "tune": Key(
        "table",
        "[tune]: names in capitals, each with a list of integers, the default first; `where`, a list of conditions "
        "over tunables, types and the device, says which settings there are; [tune.DTYPE] has others for a dtype.",
        "none",
    ),
    "let": Key("table", "[let]: names for formulas; every other formula, those of [let] too, may use them.", "none"),
    "buffer": Key("tables", "[[buffer]]: scratch memory, allocated and poisoned by the harness.", "none"),
    "launch": Key("tables", "[[launch]]: what runs, one after the other."),
    "group": Key("tables", "[group.NAME]: launches that repeat together.", "none"),
    "tensor_map": Key("tables", "[[tensor_map]]: descriptors for TMA; cuda only.", "none"),
}
ZERO: Mapping[str, Key] = {
    "name": Key("name", "The output or buffer."),
    "when": Key("condition", "Leaves it as it is, scratch poisoned, where it is false."),
}
"""Keys of an entry of `zero` that is a table."""
BUFFER: Mapping[str, Key] = {
    "name": Key("name", "What `args` call it."),
    "dtype": Key("type", "T, ACC or a type of its own.", "ACC"),
    "shape": Key("list of formulas", "Its axes; a call finds nothing of earlier calls in it."),
}
CPU_LAUNCH: Mapping[str, Key] = {
    "kernel": Key("name", "The function; on cuda with template arguments, such as `rows<BLOCK, T>`."),
    "args": Key("list", "Tensors, buffers, scalars, tensor maps, and formulas over dims and tunables."),
    "when": Key("condition", "Leaves the launch out where it is false.", "always"),
    "group": Key("name", "The group that it repeats with; `i` is then the repeat's number.", "none"),
}
CUDA_LAUNCH: Mapping[str, Key] = {
    **CPU_LAUNCH,
    "grid": Key("1 to 3 formulas", "Blocks; may name `blocks_per_sm`, the launch's occupancy. cuda only."),
    "block": Key("1 to 3 formulas", "Threads of a block. cuda only."),
    "cluster": Key("1 to 3 formulas", "Blocks of a cluster. cuda only.", "none"),
    "shared": Key("formula", "Bytes of dynamic shared memory. cuda only.", "0"),
    "overlap": Key(
        "true or false",
        "Whether it may begin before the launch ahead of it has ended (programmatic dependent launch), with "
        "cudaGridDependencySynchronize() before it touches anything of earlier launches. cuda only, from sm_90 on.",
        "false",
    ),
    "cooperative": Key("true or false", "Whether blocks may wait for each other (grid.sync()). cuda only.", "false"),
}
GROUP: Mapping[str, Key] = {"repeat": Key("formula", "How often the group's launches run, one after the other.")}
TENSOR_MAP: Mapping[str, Key] = {
    "name": Key("name", "What `args` call it."),
    "tensor": Key("name", "The tensor or buffer that it describes."),
    "shape": Key("1 to 5 formulas", "Elements along each axis, the contiguous one first."),
    "strides": Key("list of formulas", "Bytes from one element to the next, for every axis but the first.", "dense"),
    "box": Key("list of formulas", "Elements of one copy along each axis."),
    "element_strides": Key("list of formulas", "Every how many-th element is taken.", "1 each"),
    "swizzle": Key(", ".join(SWIZZLES), "As CUtensorMapSwizzle has it.", next(iter(SWIZZLES))),
    "l2_promotion": Key(", ".join(L2_PROMOTIONS), "As CUtensorMapL2promotion has it.", L2_PROMOTIONS[0]),
    "oob_fill": Key(", ".join(OOB_FILLS), "As CUtensorMapFloatOOBfill has it.", OOB_FILLS[0]),
}
TABLES: Mapping[str, Mapping[str, Key]] = {
    "": TOP,
    "zero = [{...}]": ZERO,
    "[[launch]]": CUDA_LAUNCH,
    "[[buffer]]": BUFFER,
    "[group.NAME]": GROUP,
    "[[tensor_map]]": TENSOR_MAP,
}
"""By how they are written."""
