"""Stalls of warps: from Nsight Compute's source page and a cubin's table of lines to sentences of a prompt."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fitness.cuda.compile.build import CudaBuild, compile_cuda, compile_lines
from fitness.cuda.compile.cubin import Cubin, CubinError, ElfSection, read_cubin
from fitness.cuda.compile.line_table import Lines, Row, read_lines
from fitness.cuda.compile.nvrtc import FILE
from fitness.cuda.profiling.stalls import Sampled, StalledLine, parse_source, quoted, stalled_lines
from fitness.profiling.counters import ISSUED, SAMPLED, SAMPLES, WAITS
from operators.catalog import load
from operators.kernel import Kernel
from tests.choosing import some_slow
from tests.gpu.kernels import EXAMPLES, SOFTMAX, TWO_LAUNCHES

CHAIN = """/*! evo
[[launch]]
kernel = "chase<4>"
grid = ["rows"]
block = [32]
args = ["x", "y", "rows", "cols"]
*/
#include <cuda/std/functional>
__device__ ACC twice(ACC v) { return v + v; }
__device__ __noinline__ ACC apart(const T* x, int at) {
    return load(x[at]) * sinf(twice(x[at + 1]));
}
namespace {
template <int N> __global__ void chase(const T* x, T* y, int rows, int cols) {
    int at = threadIdx.x;
    #pragma unroll
    for (int i = 0; i < N; i++)
        at = __float_as_int(__ldg(x + at)) % cols;
    at = ::cuda::std::bit_xor<int>{}(at, 1);
    y[blockIdx.x] = store(twice(at) + apart(x, at));
}
}
"""


def line_of(source: str, text: str) -> int:
    return next(number for number, line in enumerate(source.split("\n"), 1) if text in line)


@cache
def built(name: str, dtype: str, source: str) -> tuple[CudaBuild, Mapping[str, Lines]]:
    kernel, operator = Kernel(name, "cuda", source), load(name)
    made = compile_cuda(kernel, operator, dtype)
    assert isinstance(made, CudaBuild), made
    return made, compile_lines(made, kernel, operator, dtype)


def code(made: CudaBuild, name: str) -> bytes:
    found = read_cubin(made.cubin).code(f".text.{made.lowered[name]}")
    assert found
    return found


# --- the table of lines ---------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("headers")
@pytest.mark.parametrize(
    ("name", "dtype", "source"),
    some_slow(
        [
            ("softmax", "fp32", TWO_LAUNCHES),
            ("softmax", "fp32", CHAIN),
            ("softmax", "bf16", SOFTMAX),
            ("matrix_mul", "bf16", EXAMPLES["wgmma"].read_text()),
        ],
        1,
    ),
)
def test_every_instruction_of_the_judged_code_has_a_line_of_the_kernel_file(name: str, dtype: str, source: str) -> None:
    made, lines = built(name, dtype, source)
    assert set(lines) == set(made.kernels)  # compiled with lines, all are the same code byte for byte
    texts = source.split("\n")
    for kernel, table in lines.items():
        for offset in range(0, len(code(made, kernel)), 16):
            number = table.line(offset, FILE)
            assert number is not None
            assert texts[number - 1].strip()  # neither an empty line nor one of the prelude


@pytest.mark.usefixtures("headers")
def test_code_from_elsewhere_counts_where_the_kernel_file_asks_for_it() -> None:
    made, lines = built("softmax", "fp32", CHAIN)
    (table,) = lines.values()
    opcodes = struct.unpack(f"<{len(code(made, 'chase<4>')) // 8}Q", code(made, "chase<4>"))[::2]
    loads = [table.line(16 * place, FILE) for place, word in enumerate(opcodes) if word & 0x1FF == 0x181]
    # __ldg() stands in a header, load() in the prelude, twice() in the file itself.
    assert loads.count(line_of(CHAIN, "__ldg")) == 4
    assert line_of(CHAIN, "load(x[at])") in loads
    found = {table.line(offset, FILE) for offset in range(0, len(code(made, "chase<4>")), 16)}
    assert {line_of(CHAIN, "ACC twice"), line_of(CHAIN, "cuda::std::bit_xor")} & found


@pytest.mark.usefixtures("headers")
def test_a_kernel_that_becomes_other_code_has_no_lines() -> None:
    kernel, operator = Kernel("softmax", "cuda", TWO_LAUNCHES), load("softmax")
    made = compile_cuda(kernel, operator, "fp32")
    assert isinstance(made, CudaBuild)
    other = Kernel("softmax", "cuda", TWO_LAUNCHES.replace("100 * 1024", "99 * 1024").replace("x[", "x[1 + ", 1))
    assert set(compile_lines(made, other, operator, "fp32")) < set(made.kernels)


@given(st.data())
def test_a_table_that_is_broken_is_refused_and_never_more(data: st.DataObject) -> None:
    head = b"\x02\x00" + struct.pack("<I", 31) + bytes.fromhex("0101fb0e0a000101010100000001") + b"/a\0\0k.cu\0\0\0\0\0"
    program = bytes.fromhex("00090200000000000000000401030801ed00039007000376010391000001")
    whole = bytearray(struct.pack("<I", len(head + program)) + head + program)
    for place in data.draw(st.lists(st.integers(0, len(whole) - 1), max_size=6)):
        whole[place] = data.draw(st.integers(0, 255))
    table = bytes(whole)[: data.draw(st.integers(0, len(whole)))]
    cubin = Cubin((ElfSection(".debug_line", 1, 0, len(table), 0, 0, 1, 0, 0, table),))
    try:
        read_lines(cubin)
    except CubinError as error:
        assert "table of lines" in str(error)


def test_rows_that_are_inlined_into_each_other_have_an_end() -> None:
    table = Lines((Row(0, "a.h", 1, 2), Row(0, "a.h", 2, 1), Row(16, "a.h", 3, 99)))
    assert [table.line(offset, FILE) for offset in (0, 16)] == [None, None]


# --- the source page ------------------------------------------------------------------------------------------------

REASONS = ("stall_barrier", "stall_long_sb", "stall_selected", "stall_wait")


def page(*launches: tuple[str, Mapping[int, Sequence[int]]], instructions: int = 8, base: int = 0x7FC48541D900) -> str:
    """The output of ncu for launches: by offset, samples for each of REASONS."""
    columns = ["Address", "Source", "Warp Stall Sampling (All Samples)", "# Samples", *REASONS]
    columns += [f"{name} (Not Issued)" for name in REASONS]
    rows: list[list[object]] = []
    for name, samples in launches:
        rows += [["Kernel Name", f"{name}(const float *, int)", ""], columns]
        for offset in range(0, 16 * instructions, 16):
            counts = list(samples.get(offset, (0, 0, 0, 0)))
            shown = [f"{count:,}" for count in counts]
            rows.append([hex(base + offset), "      LDG.E R2, [R4] ", sum(counts), sum(counts), *shown, *shown])
        base += 1 << 20
    text = "\n".join(",".join(f'"{cell}"' for cell in row) for row in rows)
    return f"==PROF== Connected to process 7\n{text}\n==PROF== Disconnected\n"


def test_samples_are_read_by_instruction_and_reason() -> None:
    first, second = parse_source(page(("void f<4>", {16: (0, 1200, 30, 2)}), ("g", {0: (5, 0, 0, 0)})))
    assert first == Sampled({16: {"long_scoreboard": 1200.0, "wait": 2.0}})  # a warp that went on did not wait
    assert second == Sampled({0: {"barrier": 5.0}})
    raw = page(("f", {16: (0, 9, 1, 0)})).replace("stall_long_sb", "smsp__pcsamp_warps_issue_stalled_long_scoreboard")
    assert parse_source(raw.replace("long_scoreboard (Not Issued)", "long_scoreboard_not_issued")) == [
        Sampled({16: {"long_scoreboard": 9.0}})
    ]


def test_a_page_of_a_real_tool_is_read() -> None:
    """The page is of ncu 2025.3 on an H200, asked for all of SAMPLES; most instructions are left out."""
    text = (Path(__file__).parent / "ncu_source.csv").read_text()
    shown = {SAMPLED + reason for reason in (ISSUED, *WAITS)} - {SAMPLED + "gmma"}
    assert shown == {cell for cell in text.split('"') if cell.startswith(SAMPLED)} <= set(SAMPLES)
    (launch,) = parse_source(text)
    assert launch.stalls[0] == {"no_instructions": 28.0}
    assert launch.stalls[0x240] == {
        "dispatch_stall": 8.0, "long_scoreboard": 143.0, "math_pipe_throttle": 7.0, "not_selected": 9.0, "wait": 10.0,
    }  # fmt: skip


@given(st.text(alphabet='"#,\n0x19afKernlNmeAdrsSouc stall_wait', max_size=400))
def test_what_is_no_source_page_tells_nothing(text: str) -> None:
    assert all(sampled.total == 0 or sampled.stalls for sampled in parse_source(text))


def test_of_several_launches_lines_weigh_by_time() -> None:
    first = Lines((Row(0, FILE, 3), Row(16, FILE, 4)))
    second = Lines((Row(0, FILE, 9), Row(64, "header.h", 2)))
    sampled = [
        (Sampled({0: {"wait": 60.0, "barrier": 20.0}, 16: {"wait": 20.0}}), first, 0.75),
        (Sampled({0: {"long_scoreboard": 500.0}, 80: {"misc": 500.0}}), second, 0.25),
        (Sampled({0: {"wait": 3.0}}), first, 9.0),  # too few to say anything
    ]
    assert stalled_lines(sampled) == [
        StalledLine(3, pytest.approx(0.6), "wait", pytest.approx(0.75)),
        StalledLine(4, pytest.approx(0.15), "wait", pytest.approx(1.0)),
        StalledLine(9, pytest.approx(0.125), "long_scoreboard", pytest.approx(1.0)),
    ]


@pytest.mark.usefixtures("headers")
def test_a_prompt_quotes_the_lines_at_which_warps_wait() -> None:
    made, lines = built("softmax", "fp32", CHAIN)
    (table,) = lines.values()
    number = line_of(CHAIN, "__ldg")
    offsets = [o for o in range(0, len(code(made, "chase<4>")), 16) if table.line(o, FILE) == number]
    samples = dict.fromkeys(offsets, (0, 1000, 50, 10)) | {0: (0, 0, 100, 40)}
    (sampled,) = parse_source(page(("chase<4>", samples), instructions=len(code(made, "chase<4>")) // 16))
    first, *_ = quoted(stalled_lines([(sampled, table, 1.0)]), CHAIN)
    assert first.startswith(f"warps wait at line {number} (")
    assert first.endswith(
        "99 % of these for loads from global or local memory): at = __float_as_int(__ldg(x + at)) % cols;"
    )
