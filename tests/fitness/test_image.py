"""The linker's image of a kernel is taken apart without a loader; whatever is in it, it is refused or mapped."""

from __future__ import annotations

import struct
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fitness.cpu.build import CpuBuild, build
from fitness.cpu.cores import plan_facts
from fitness.cpu.gate import section_objection
from fitness.cpu.image import Image, Refused, image
from fitness.cpu.runner import CpuRunner, plan_words
from fitness.judging.device import KernelFault, KilledFromOutside
from fitness.judging.signature import TableError, parameter_table
from fitness.sandbox.memory import Region
from operators.definition.spec import Operator
from operators.kernel import Kernel
from operators.plan.reading import parse_plan
from tests.choosing import examples, some_slow
from tests.fitness.kernels import LOOP, RIGHT, axpb_kernel
from tests.redteam.processes import descendants

POISON = 0xB3
TABLES = """
static double one(double x) { return x; }
static double two(double x) { return 2 * x; }
static double (*const functions[])(double) = {one, two, __builtin_sin, __builtin_cos};
"""


def compiled(kernel: Kernel, operator: Operator, folder: Path) -> CpuBuild:
    plan = parse_plan(kernel.source, operator, "cpu")
    made = build(kernel, plan, operator, dtype="fp32", folder=folder, resolved="same")
    assert isinstance(made, CpuBuild), made
    return made


def outputs(
    kernel: Kernel, operator: Operator, folder: Path, *, threads: int = 1, calls: int = 1, deep: bool = False
) -> list[float]:
    """The outputs of the last call for eight elements 1 ... 8 and b = 0, alpha as declared, on stacks full of
    POISON."""
    made = compiled(kernel, operator, folder)
    plan = parse_plan(kernel.source, operator, "cpu")
    resolved = plan.resolve(operator, dtype="fp32", dims={"n": 8}, values={}, facts=plan_facts(threads))
    with CpuRunner(threads=threads) as runner:
        runner.map(made.image, made.library)
        inputs, work = Region({"x": 32, "b": 32}, at_end=False), Region({"y": 32}, at_end=False)
        inputs.view("x")[:] = struct.pack("<8f", *range(1, 9))
        inputs.view("b")[:] = bytes(32)
        order = runner.bind(0, inputs, work)
        runner.define(0, plan_words(resolved, made, operator, order, work))
        for _ in range(calls):
            runner.run(0, 0, timeout_s=5.0, poison=POISON, deep=deep)
        return list(struct.unpack("<8f", bytes(work.view("y"))))


def test_constants_with_addresses_and_locks_work_without_a_loader(axpb: Operator, tmp_path: Path) -> None:
    body = f"{LOOP}{{\n#pragma omp critical(sum)\ny[i] = functions[i % 4](x[i]);\n}}"
    found = outputs(axpb_kernel(body, before=f"#include <cmath>\n{TABLES}"), axpb, tmp_path)
    assert found[:2] == [1.0, 4.0] and found[2] == pytest.approx(0.14112, abs=1e-4)
    assert found[3] == pytest.approx(-0.653644, abs=1e-4) and found[4:6] == [5.0, 12.0]


def test_a_team_of_one_may_become_a_team_of_two(axpb: Operator, tmp_path: Path) -> None:
    """The C library prepares signals for the first thread, which the filter of system calls has no room for."""
    body = f"#pragma omp parallel for num_threads(2)\n{RIGHT}"
    assert outputs(axpb_kernel(body), axpb, tmp_path) == [1.5 * i for i in range(1, 9)]


@pytest.mark.parametrize("deep", some_slow([True, False], 1))
def test_stacks_are_poisoned_as_deep_as_they_are_to_be_and_nothing_stays_there(
    axpb: Operator, tmp_path: Path, deep: bool
) -> None:
    pages = 1536
    body = f"""#pragma omp parallel num_threads(2)
    {{
        volatile unsigned char stack[{pages << 12}];
        int poisoned = 0;
        for (int i = 0; i < {pages << 12}; i += 1 << 12) poisoned += stack[i] == {POISON}, stack[i] = 1;
        #pragma omp critical(first)
        if (y[0] != y[0]) y[0] = poisoned; else y[1] = poisoned;
    }}
    {LOOP}if (i > 1) y[i] = x[i];"""
    before = 'y[0] = __builtin_nanf("");'
    found = outputs(axpb_kernel(f"{before}\n{body}"), axpb, tmp_path, threads=2, calls=2, deep=deep)
    assert all(poisoned == pages if deep else 0 < poisoned < 20 for poisoned in found[:2])


@pytest.mark.parametrize("threads", some_slow([2, 1], 1))
def test_no_call_has_less_of_a_stack_than_another(axpb: Operator, tmp_path: Path, threads: int) -> None:
    body = f"""#pragma omp parallel num_threads({threads})
    {{
        volatile unsigned char stack[8000000];
        for (int i = 8000000; i > 0; i -= 1000) stack[i - 1] = 1;
    }}
    {RIGHT}"""
    for deep in (False, True):
        found = outputs(axpb_kernel(body), axpb, tmp_path, threads=threads, deep=deep)
        assert found == [1.5 * i for i in range(1, 9)]


def test_constants_with_addresses_cannot_be_written(axpb: Operator, tmp_path: Path) -> None:
    slot = "reinterpret_cast<double (*volatile*)(double)>(reinterpret_cast<unsigned long>(functions))"
    with pytest.raises(KernelFault, match="segmentation fault"):
        outputs(axpb_kernel(f"{slot}[n & 1] = two; {RIGHT}", before=TABLES), axpb, tmp_path)


@pytest.mark.parametrize(("sealed", "order"), [(False, "pipe"), (True, "memfd")])
def test_a_call_has_no_descriptors_but_those_of_its_notes_and_orders(
    axpb: Operator, tmp_path: Path, *, sealed: bool, order: str
) -> None:
    made = compiled(axpb_kernel("for (volatile int i = 0;;) { i = 1; }"), axpb, tmp_path)
    plan = parse_plan(axpb_kernel(RIGHT).source, axpb, "cpu")
    resolved = plan.resolve(axpb, dtype="fp32", dims={"n": 8}, values={}, facts=plan_facts(1))
    found: set[tuple[str, ...]] = set()
    wanted = ("0 socket", f"1 {order}")
    with CpuRunner(threads=1) as runner, ThreadPoolExecutor(1) as pool:
        runner.map(made.image, made.library)
        inputs, work = Region({"x": 32, "b": 32}, at_end=False), Region({"y": 32}, at_end=False)
        numbered = runner.bind(0, inputs, work)
        runner.define(0, plan_words(resolved, made, axpb, numbered, work))
        call = pool.submit(runner.run, 0, 0, timeout_s=30.0, sealed=sealed)
        while wanted not in found and not call.done():
            for process in descendants(runner.pid):
                with suppress(OSError):  # it has ended
                    fds = Path(f"/proc/{process}/fd").iterdir()
                    found.add(tuple(sorted(f"{fd.name} {fd.readlink().name.partition(':')[0]}" for fd in fds)))
        runner.close()
        with pytest.raises(KilledFromOutside):
            call.result()
    assert wanted in found


@pytest.fixture(scope="module")
def linked(axpb: Operator, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    body = f"{LOOP}y[i] = functions[i % 4](x[i]);"
    made = compiled(axpb_kernel(body, before=TABLES), axpb, tmp_path_factory.mktemp("build"))
    return made.library.read_bytes()


@examples(300)
@given(data=st.data())
def test_a_damaged_object_is_refused_or_stays_inside_of_itself(linked: bytes, data: st.DataObject) -> None:
    damaged = bytearray(linked)
    # Headers and tables for the loader are at the beginning and at the end of what is loaded.
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.one_of(st.integers(0, 0x700), st.integers(0, len(linked) - 8))) & ~3
        size = data.draw(st.sampled_from([1, 2, 4, 8]))
        damaged[place : place + size] = data.draw(st.binary(min_size=size, max_size=size))
    cut = data.draw(st.sampled_from([len(damaged)] * 4 + [0, 10, 100, 1000]))
    try:
        found = image(bytes(damaged[:cut]), 1)
    except Refused as error:
        assert len(str(error)) < 1000
        return
    inside(found)


def inside(found: Image) -> None:
    """The orders touch nothing outside of the image, and nothing is both written and run."""
    writable = [s for s in found.segments if s.protection & 2]
    assert all(s.address >= 0 and s.end <= found.bytes and s.protection in (1, 3, 5) for s in found.segments)
    assert all(0 <= start <= found.bytes for start in found.launches)
    for place, number, addend in found.relocations:
        assert writable and writable[0].address <= place <= writable[0].end - 8
        assert -1 <= number < len(found.imports)
        assert number >= 0 or 0 <= addend <= found.bytes


@examples(200)
@given(data=st.binary(max_size=200))
def test_a_table_of_parameters_is_read_or_refused(data: bytes) -> None:
    with suppress(TableError):
        assert all(param.size > 0 for param in parameter_table(data))


@examples(200)
@given(data=st.binary(max_size=400), count=st.integers(0, 65535), names=st.integers(0, 65535))
def test_damaged_sections_are_an_objection_and_no_error(data: bytes, count: int, names: int) -> None:
    header = b"\x7fELF\x02\x01".ljust(40, b"\0") + struct.pack("<QI6H", 64, 0, 64, 0, 0, 64, count, names)
    found = section_objection(header + data)
    assert found is None or isinstance(found, str)
