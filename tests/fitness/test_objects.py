"""An object file, however it was changed, is told about or refused in words."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest

from fitness.cpu import build as module
from fitness.cpu.build import CpuBuild, build
from fitness.cpu.gate import section_objection
from fitness.evaluation import Rejection, Status
from fitness.sandbox.processes import ProcessOutcome
from operators.definition.spec import Operator
from operators.plan.reading import parse_plan
from tests.bench.fuzz.elf import Sample
from tests.choosing import some_slow
from tests.fitness.kernels import RIGHT, axpb_kernel

CHANGES = 1500
FAR = (2**31, 2**32, 2**62, 2**63, 2**64 - 1)


@pytest.fixture
def sample(axpb: Operator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Sample:
    """An object file; from now on nothing is disassembled."""
    objects: list[bytes] = []
    run = module.run_confined

    def kept(command: Sequence[str], *, cwd: str, **options: Any) -> ProcessOutcome:
        if "objdump" in command[0]:
            objects.append(Path(cwd, "kernel.o").read_bytes())
        return run(list(command), cwd=cwd, **options)

    monkeypatch.setattr(module, "run_confined", kept)
    kernel = axpb_kernel(RIGHT)
    plan = parse_plan(kernel.source, axpb, "cpu")
    assert isinstance(build(kernel, plan, axpb, dtype="fp32", folder=tmp_path, resolved=""), CpuBuild)
    monkeypatch.setattr(module, "run_confined", lambda *_, **__: ProcessOutcome(0, "", False, 0.0))
    return Sample(objects[0])


@pytest.mark.slow
def test_changed_objects_are_verdicts(sample: Sample, tmp_path: Path) -> None:
    file, refused = tmp_path / "changed.o", 0
    for number in range(CHANGES):
        file.write_bytes(sample.mutated(Random(number)))
        told = module._told(file, ("axpb",))
        if isinstance(told, Rejection):
            refused += 1
            assert told.status is Status.INVALID
            assert told.message
    assert 0 < refused < CHANGES


@pytest.mark.parametrize("field", some_slow(["offset", "bytes", "kind", "name", "link", "info", "entry_bytes"], 2))
def test_sections_far_away_are_no_error(sample: Sample, tmp_path: Path, field: str) -> None:
    file = tmp_path / "changed.o"
    for section in sample.records["section"]:
        for value in FAR:
            data = bytearray(sample.data)
            section.write(data, field, value)
            file.write_bytes(data)
            module._told(file, ("axpb",))


def test_a_first_section_is_empty(sample: Sample) -> None:
    data = bytearray(sample.data)
    assert section_objection(bytes(data)) is None
    sample.records["section"][0].write(data, "kind", 2)
    assert section_objection(bytes(data)) is not None
