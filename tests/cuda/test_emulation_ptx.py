"""Inline PTX under emulation: each instruction against numpy, and faults that are seeded into kernels made of them.

Layouts of fragments stand here as the PTX ISA states them, element by element (chapter 9.7.14.5), not as ptx.hpp does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from fitness.cuda.compile.build import CudaBuild, compile_cuda
from fitness.emulator.ptx.assembly import translated
from fitness.emulator.target import Emulation, _Session, emulated
from fitness.evaluation import Rejection, Status
from fitness.sandbox.source import ASSEMBLY, tokenized
from operators.catalog import load
from operators.definition.spec import Workload
from operators.errors import UserError
from operators.kernel import Kernel
from tests.choosing import examples, some_slow

AXPB = load(str(Path(__file__).parents[1] / "data" / "axpb"))
SOURCE = (Path(__file__).parent / "ptx.cu").read_text(encoding="utf-8")
WORDS = 1024
Words = NDArray[np.uint32]
Run = Callable[..., Words]
LANE = np.arange(32)
GROUP, IN_GROUP = LANE >> 2, LANE % 4


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """It runs the kernel of ptx.cu: (what, which, words of all lanes [i, lane]) -> results [i, lane]."""
    emulation = Emulation(AXPB, "fp32", folder=tmp_path_factory.mktemp("ptx"))
    prepared = emulation.prepare(Kernel("axpb", "cuda", SOURCE))
    assert not isinstance(prepared, Rejection), prepared
    rng = np.random.default_rng(0)
    case = emulation.oracle.case(Workload("words", {"n": WORDS}), "nominal", rng, at_end=True)

    with _Session(emulation, prepared, rng) as session:

        def call(what: int, which: int, words: Any, poison: int = 0xFF) -> Words:
            given = np.zeros(WORDS, np.uint32)
            given[:2] = what, which
            flat = np.ascontiguousarray(words).view(np.uint32).reshape(-1)
            given[32 : 32 + flat.size] = flat
            case.region.view("x")[:] = given.tobytes()  # type: ignore[attr-defined]
            session.bind(case, at_end=True)
            results = np.frombuffer(bytes(session.run(poison=poison).view("y")), np.uint32)
            return results.reshape(-1, 32)

        yield call


def random_words(seed: int, count: int) -> Words:
    return np.random.default_rng(seed).integers(0, 1 << 32, (count, 32), dtype=np.uint32)


# --- mma --------------------------------------------------------------------------------------------------------------

TYPES: dict[str, tuple[Any, int]] = {
    "f16": (torch.float16, 16), "bf16": (torch.bfloat16, 16), "tf32": (torch.float32, 32), "f64": (torch.float64, 64),
    "s8": (torch.int8, 8), "u8": (torch.uint8, 8), "e4m3": (torch.float8_e4m3fn, 8), "e5m2": (torch.float8_e5m2, 8),
}  # fmt: skip
MMA = (
    (0, 16, 16, "bf16", "bf16", "f32"), (1, 16, 16, "f16", "f16", "f32"), (2, 16, 8, "bf16", "bf16", "f32"),
    (3, 16, 8, "f16", "f16", "f32"), (4, 16, 8, "tf32", "tf32", "f32"), (5, 16, 4, "tf32", "tf32", "f32"),
    (6, 16, 32, "s8", "s8", "s32"), (7, 16, 32, "u8", "s8", "s32"), (8, 16, 32, "e4m3", "e5m2", "f32"),
    (9, 16, 16, "f16", "f16", "f16"), (10, 8, 4, "f64", "f64", "f64"),
)  # fmt: skip
"""Number in ptx.cu, rows, k, types of A, B, and C with D."""


def place_of_a(rows: int, k: int, bits: int, i: int) -> tuple[Any, Any]:
    """Row and column of element a_i of every lane: chapters 9.7.14.5.1, .4, .5, .6, .7, .8 and .10."""
    if bits == 64:
        return GROUP, IN_GROUP
    if bits == 32:
        return GROUP + 8 * (i % 2), IN_GROUP + 4 * (i // 2)
    if bits == 16:
        return np.where(0 <= i < 2 or 4 <= i < 6, GROUP, GROUP + 8), IN_GROUP * 2 + (i & 1) + (8 if i >= 4 else 0)
    return np.where(0 <= i < 4 or 8 <= i < 12, GROUP, GROUP + 8), IN_GROUP * 4 + (i & 3) + (16 if i >= 8 else 0)


def place_of_b(bits: int, i: int) -> tuple[Any, Any]:
    if bits >= 32:
        return IN_GROUP + 4 * i, GROUP
    if bits == 16:
        return IN_GROUP * 2 + (i & 1) + (8 if i >= 2 else 0), GROUP
    return IN_GROUP * 4 + (i & 3) + (16 if i >= 4 else 0), GROUP


def place_of_c(i: int) -> tuple[Any, Any]:
    return np.where(i < 2, GROUP, GROUP + 8), IN_GROUP * 2 + (i & 1)


def drawn(rng: np.random.Generator, shape: tuple[int, int], name: str) -> tuple[NDArray[Any], NDArray[Any]]:
    """A matrix in fp64, and its bits."""
    dtype, bits = TYPES[name]
    if name in ("s8", "u8"):
        values = torch.from_numpy(rng.integers(*((-128, 128) if name == "s8" else (0, 256)), shape)).to(dtype)
    else:
        values = torch.from_numpy(rng.normal(size=shape)).to(dtype)
    raw = values.view({8: torch.uint8, 16: torch.int16, 32: torch.int32, 64: torch.int64}[bits]).numpy()
    raw = raw.view(f"u{bits // 8}")
    exact = values.double().numpy() if name != "tf32" else (raw & np.uint32(0xFFFFE000)).view(np.float32).astype(float)
    return exact, raw


def fragments(raw: NDArray[Any], bits: int, places: Any) -> list[Words]:
    """Words of a fragment, whose elements lie from low to high bits."""
    elements = [raw[place] for place in places]
    if bits == 64:
        return [(e >> np.uint64(shift)).astype(np.uint32) for e in elements for shift in (0, 32)]
    each = 32 // bits
    words = []
    for first in range(0, len(elements), each):
        word = np.zeros(32, np.uint32)
        for i in range(each):
            word |= elements[first + i].astype(np.uint32) << np.uint32(i * bits)
        words.append(word)
    return words


@pytest.mark.slow
@examples(60)
@given(which=st.sampled_from(MMA), seed=st.integers(0, 1 << 32))
def test_mma_multiplies_fragments_as_the_isa_lays_them_out(run: Run, which: Any, seed: int) -> None:
    number, rows, k, of_a, of_b, of_c = which
    rng, bits = np.random.default_rng(seed), TYPES[of_a][1]
    a, raw_a = drawn(rng, (rows, k), of_a)
    b, raw_b = drawn(rng, (k, 8), of_b)
    c = rng.integers(-1000, 1000, (rows, 8)) if of_c == "s32" else rng.normal(size=(rows, 8))
    kind = {"s32": np.int32, "f32": np.float32, "f16": np.float16, "f64": np.float64}[of_c]
    c = c.astype(kind)
    wide = 8 * c.itemsize
    sums = [place_of_c(i) for i in range(rows * 8 // 32)]
    words = np.zeros((10, 32), np.uint32)
    mine = fragments(raw_a, bits, [place_of_a(rows, k, bits, i) for i in range(rows * k // 32)])
    theirs = fragments(raw_b, bits, [place_of_b(bits, i) for i in range(k * 8 // 32)])
    added = fragments(c.view(f"u{c.itemsize}"), wide, sums)
    first = {10: (0, 2, 4)}.get(number, (0, 4, 6))
    for start, part in zip(first, (mine, theirs, added), strict=True):
        words[start : start + len(part)] = part
    found = run(0, number, words)
    expected = a @ b + c.astype(float)
    for i, place in enumerate(sums):
        if wide == 64:
            got = (found[2 * i].astype(np.uint64) | found[2 * i + 1].astype(np.uint64) << np.uint64(32)).view(float)
        elif wide == 16:
            got = (found[i // 2] >> np.uint32(16 * (i % 2))).astype(np.uint16).view(np.float16)
        else:
            got = found[i].view(kind)
        off = {"s32": 0.5, "f16": 2e-2}.get(of_c, 2e-6 * k)
        np.testing.assert_allclose(got.astype(float), expected[place], rtol=0, atol=off)


# --- matrices in shared memory ----------------------------------------------------------------------------------------


@examples(60)
@given(which=st.integers(0, 8), seed=st.integers(0, 1 << 32))
def test_ldmatrix_and_stmatrix_move_rows_that_lanes_point_at(run: Run, which: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows = rng.permutation(32).astype(np.uint32)  # of 16 bytes
    words = np.concatenate([rows[None], random_words(seed, 4)])
    found = run(1, which, words)
    memory = words[1:].reshape(-1).view(np.uint16).reshape(32, 8)
    if which < 6:
        count, transposed = 1 << which // 2, which % 2
        for m in range(count):
            matrix = memory[rows[8 * m : 8 * m + 8]]
            matrix = matrix.T if transposed else matrix
            assert (found[m] == np.ascontiguousarray(matrix).view(np.uint32).reshape(-1)).all()
    elif which < 8:
        expected = np.zeros((32, 8), np.uint16)
        for m in range(4):
            matrix = np.ascontiguousarray(words[1 + m]).view(np.uint16).reshape(8, 8)
            expected[rows[8 * m : 8 * m + 8]] = matrix.T if which == 7 else matrix
        assert (found[4:8].reshape(-1) == expected.view(np.uint32).reshape(-1)).all()
    else:
        matrix = np.ascontiguousarray(words[1]).view(np.uint16).reshape(8, 8).T
        assert (found[0] == np.ascontiguousarray(matrix).view(np.uint32).reshape(-1)).all()


# --- asynchronous copies ----------------------------------------------------------------------------------------------


@examples(40)
@given(which=st.sampled_from((1, 2, 4, 8, 16)), seed=st.integers(0, 1 << 32), poison=st.sampled_from((0xFF, 0x7B)))
def test_a_copy_arrives_when_it_is_waited_for_and_not_before(run: Run, which: int, seed: int, poison: int) -> None:
    words = random_words(seed, 20)
    found = run(2, which, words, poison)
    sizes = words[0] % 17
    size = which if which > 2 else 16
    taken = {1: np.full(32, 16), 2: np.where(sizes & 1, 0, 16)}.get(which, sizes % (size + 1))
    begun = (sizes & 1) == 1 if which == 1 else np.full(32, True)
    filled = b"\xff" if poison == 0xFF else b"\x3f"
    for lane in range(32):
        source = words.reshape(-1)[32 + 4 * lane : 36 + 4 * lane].tobytes()
        old = b"\x11" * 16
        flight = filled * size + old[size:] if begun[lane] else old
        done = source[: taken[lane]] + bytes(size - taken[lane]) + old[size:] if begun[lane] else old
        assert found[0:4, lane].tobytes() == flight
        assert found[4:8, lane].tobytes() == done
        assert found[8:12, lane].tobytes() == filled * 16
        assert found[12:16, lane].tobytes() == words.reshape(-1)[160 + 4 * lane : 164 + 4 * lane].tobytes()


# --- the rest ---------------------------------------------------------------------------------------------------------


def f32(bits: Any) -> Any:
    return np.asarray(bits, np.uint32).view(np.float32)


def bits_of(values: Any) -> Any:
    return np.asarray(values, np.float32).view(np.uint32)


def funnel(low: Any, high: Any, by: Any, left: bool) -> Any:
    both = high.astype(np.uint64) << np.uint64(32) | low
    by = by.astype(np.uint64)
    return (both << by >> np.uint64(32) if left else both >> by).astype(np.uint32)


def extract(a: Any, b: Any, c: Any, signed: bool) -> Any:
    results = []
    for word, begin, length in zip(a.tolist(), (b & 255).tolist(), (c & 255).tolist(), strict=True):
        last = min(begin + length - 1, 31)
        sign = signed and length > 0 and word >> last & 1
        results.append(
            sum((word >> (begin + i) & 1 if begin + i <= 31 else int(sign)) << i for i in range(min(length, 32)))
        )
        if sign and length < 32:
            results[-1] |= -1 << length & 0xFFFFFFFF
    return np.array(results, np.uint32)


def halves(a: Any, dtype: Any) -> torch.Tensor:
    return torch.from_numpy(np.ascontiguousarray(a).view(np.int16).copy()).view(dtype)


def packed(low: Any, high: Any, dtype: Any) -> Any:
    both = [torch.from_numpy(f32(v).copy()).to(dtype).view(torch.int16).numpy().view(np.uint16) for v in (low, high)]
    return both[0].astype(np.uint32) | both[1].astype(np.uint32) << np.uint32(16)


def s(words: Any) -> Any:
    return words.view(np.int32).astype(np.int64)


def wrapped(values: Any) -> Any:
    return (np.asarray(values, np.int64) & 0xFFFFFFFF).astype(np.uint32)


def shuffled_up(a: Any) -> Any:
    return np.where(LANE >= 5, np.roll(a, 5), 7)


FLOATING = (15, 16, 17, 18, 19, 20, 21, 22, 23, 33, 34, 35)
"""Instructions on numbers of fp32; their operands are drawn as such."""
EXPECTED: dict[int, Callable[[Any, Any, Any], Any]] = {
    0: lambda a, b, c: a + b,
    1: lambda a, b, c: a * b + c,
    2: lambda a, b, c: wrapped(s(a) * s(b) >> 32),
    3: lambda a, b, c: (a.astype(np.uint64) * b >> np.uint64(32)).astype(np.uint32),
    4: lambda a, b, c: (a & b) ^ c,
    5: lambda a, b, c: (a & 0xFFFF) | b << np.uint32(16),
    6: lambda a, b, c: funnel(a, b, c & 31, True),
    7: lambda a, b, c: funnel(a, b, np.minimum(c, 32), False),
    8: lambda a, b, c: np.where(b > 31, 0, a << (b & 31)),
    9: lambda a, b, c: wrapped(s(a) >> np.minimum(b, 31)),
    10: lambda a, b, c: extract(a, b, c, False),
    11: lambda a, b, c: extract(a, b, c, True),
    13: lambda a, b, c: np.where((a > c) & (s(a) < s(b)), a, b),
    14: lambda a, b, c: a >> np.uint32(16) | a << np.uint32(16),
    15: lambda a, b, c: bits_of(f32(a) + f32(b)),
    16: lambda a, b, c: bits_of(f32(a).astype(float) * f32(b) + f32(c)),
    17: lambda a, b, c: bits_of(f32(a) * f32(b)),
    18: lambda a, b, c: bits_of(np.minimum(f32(a), f32(b))),
    19: lambda a, b, c: bits_of(np.maximum(f32(a), f32(b))),
    20: lambda a, b, c: packed(b, a, torch.bfloat16),
    21: lambda a, b, c: packed(b, a, torch.float16),
    22: lambda a, b, c: (a + np.uint32(0x1000)) & np.uint32(0xFFFFE000),
    23: lambda a, b, c: wrapped(np.trunc(f32(a).astype(float))),
    24: lambda a, b, c: bits_of(s(a).astype(np.float32)),
    27: lambda a, b, c: (np.uint32(1) << (b & 31)) + a,
    28: lambda a, b, c: np.where(LANE % 8 < 5, np.roll(a, -3), a),
    29: lambda a, b, c: shuffled_up(a),
    30: lambda a, b, c: np.full(32, s(a).min() & 0xFFFFFFFF),
    31: lambda a, b, c: np.full(32, sum(1 << i for i in range(32) if s(a)[i] < 0)),
    32: lambda a, b, c: LANE,
    33: lambda a, b, c: (f32(a) < f32(b)).astype(np.uint32),
    34: lambda a, b, c: bits_of(f32(a) * np.float32(0.5)),
    35: lambda a, b, c: bits_of(f32(a) * np.float32(1.5)),
}


@examples(150)
@given(which=st.sampled_from(sorted(EXPECTED)), seed=st.integers(0, 1 << 32), small=st.booleans())
def test_arithmetic_has_the_bits_that_numpy_has(run: Run, which: int, seed: int, small: bool) -> None:
    a, b, c = random_words(seed, 3)
    if which in FLOATING:
        a, b, c = (bits_of(row) for row in np.random.default_rng(seed).normal(size=(3, 32)) * 1000)
    elif small:
        b, c = b % np.uint32(40), c % np.uint32(40)
    found = run(3, which, np.stack([a, b, c]))[0]
    expected = np.asarray(EXPECTED[which](a, b, c)).astype(np.uint32)
    assert (found == expected).all(), (found, expected)


@examples(40)
@given(which=st.integers(40, 44), seed=st.integers(0, 1 << 32))
def test_wide_results_and_numbers_of_64_bits(run: Run, which: int, seed: int) -> None:
    words = random_words(seed, 5)
    a, b, f = words[0], words[1], words[3].astype(np.uint64) | words[4].astype(np.uint64) << np.uint64(32)
    expected = {
        40: (s(a) * s(b)).view(np.uint64), 41: a.astype(np.uint64) * b + f, 42: s(a).view(np.uint64),
        43: b.astype(np.uint64) | a.astype(np.uint64) << np.uint64(32), 44: f + np.uint64(5),
    }[which]  # fmt: skip
    found = run(3, which, words)
    assert (found[1] == (expected & np.uint64(0xFFFFFFFF)).astype(np.uint32)).all()
    assert (found[2] == (expected >> np.uint64(32)).astype(np.uint32)).all()


def test_pairs_of_halves(run: Run) -> None:
    values = np.random.default_rng(1).normal(size=(3, 64)).astype(np.float32)
    words = np.stack([packed(bits_of(row[::2]), bits_of(row[1::2]), torch.bfloat16) for row in values])
    a, b, c = (halves(word, torch.bfloat16).double() for word in words)
    found = halves(run(3, 25, words)[0], torch.bfloat16)
    assert torch.equal(found, (a * b + c).to(torch.bfloat16))
    words = np.stack([packed(bits_of(row[::2]), bits_of(row[1::2]), torch.float16) for row in values])
    high = halves(words[0], torch.float16).float()[1::2]
    assert (f32(run(3, 26, words)[0]) == high.numpy()).all()


# --- kernels with faults ----------------------------------------------------------------------------------------------

GEMM = (Path(__file__).parent / "gemm.cu").read_text(encoding="utf-8")
SHAPES = ({"m": 70, "n": 72, "k": 104}, {"m": 16, "n": 136, "k": 64})
WAIT, LAST_WAIT, BARRIER = '"cp.async.wait_group 1;"', '"cp.async.wait_group 0;"', "        __syncthreads();\n"
SEEDED: dict[str, tuple[tuple[str, str], ...]] = {
    "registers of A swapped": (('"r"(a[1]), "r"(a[2])', '"r"(a[2]), "r"(a[1])'),),
    "registers of B swapped": (('"r"(b0), "r"(b1)', '"r"(b1), "r"(b0)'),),
    "results of two rows swapped": (("lane / 4 + l / 2 * 8", "lane / 4 + (1 - l / 2) * 8"),),
    "no wait for a copy": ((WAIT, '""'),),
    "no wait for the last copy": ((LAST_WAIT, '""'),),
    "a wait for one group too few": ((WAIT, '"cp.async.wait_group 2;"'),),
    "groups that never end": (('asm volatile("cp.async.commit_group;" ::: "memory");', ""),),
    "a wrong row for ldmatrix": (("down + 16 * i + lane % 16]", "down + 16 * i + lane % 8]"),),
    "halves of a row swapped for ldmatrix": (("[at + lane / 16 * 8]", "[at + (1 - lane / 16) * 8]"),),
    "ldmatrix without .trans": ((".x4.trans.", ".x4."),),
    "no barrier after the wait": ((BARRIER + "        const Stage", "        const Stage"),),
    "no barrier before a stage is filled again": ((BARRIER + "    }\n    for", "    }\n    for"),),
    "no zeros past the end": (("inside ? 16 : 0", "16"),),
    "a shared address cut short": (("DEPTH + 8, PITCH_B", "DEPTH + 4, PITCH_B"),),
    "a generic address for a shared one": (("__cvta_generic_to_shared(at)", "(unsigned long long)at"),),
    "mma in half of a warp": (("multiply(sums[i][j], left[i]", "if (lane < 16) multiply(sums[i][j], left[i]"),),
}


def multiplied(*edits: tuple[str, str]) -> Any:
    source = GEMM
    for old, new in edits:
        assert source.count(old) == 1, old
        source = source.replace(old, new)
    # Of one family alone, such as `few`, whose terms are mostly zero, a fault may miss all that is not.
    return emulated(Kernel("matrix_mul", "cuda", source), load("matrix_mul"), "bf16", shapes=SHAPES, families=4)


def test_a_kernel_on_tensor_cores_with_asynchronous_copies_is_right() -> None:
    found = multiplied()
    assert not isinstance(found, Rejection), found


FIRST = ("registers of A swapped", "no wait for a copy")


@pytest.mark.parametrize("fault", some_slow(SEEDED, FIRST))
def test_a_seeded_fault_is_found(fault: str) -> None:
    found = multiplied(*SEEDED[fault])
    assert isinstance(found, Rejection)
    assert found.status in (Status.WRONG, Status.RUNTIME_ERROR), found


PRODUCER = """/*! evo
[[launch]]
kernel = "shift"
grid = ["ceil_div(n, 64)"]
block = [128]
args = ["x", "b", "y", "alpha", "n"]
*/
extern "C" __global__ void shift(const T* x, const T* b, T* y, T alpha, int n) {
    __shared__ T tile[64];
    const int i = blockIdx.x * 64 + threadIdx.x % 64;
    if (threadIdx.x < 64) {
        if (i < n) tile[threadIdx.x] = alpha * x[i];
        asm volatile("barrier.cta.arrive 3, %0;" ::"r"(128) : "memory");
    } else {
        asm volatile("bar.sync 3, 128;" ::: "memory");
        const unsigned at = static_cast<unsigned>(__cvta_generic_to_shared(&tile[threadIdx.x % 64]));
        float v;
        asm volatile("ld.shared.f32 %0, [%1];" : "=f"(v) : "r"(at));
        if (i < n) asm volatile("st.global.f32 [%0], %1;" ::"l"(y + i), "f"(v + b[i]) : "memory");
    }
}
"""


@pytest.mark.parametrize(
    ("edit", "told"),
    some_slow(
        [
            (("", ""), ""),
            (("bar.sync 3, 128;", ""), "wrong result"),
            (("bar.sync 3, 128;", "bar.sync 2, 128;"), "a deadlock"),
            (("bar.sync 3, 128;", "bar.sync 3, 100;"), "barrier 3 for 100 threads"),
            (("[%1];", "[%1 + 2];"), "which is no multiple of 4"),
            (("[%1];", "[%1 + 4096];"), "ld at address"),
            (
                ("bar.sync 3, 128;", "wgmma.fence.sync.aligned;"),
                "needs a GPU: line 15: not emulated: wgmma.fence.sync.aligned",
            ),
            (
                ("bar.sync 3, 128;", "bar.sync 3, %5;"),
                "needs a GPU: line 15: not emulated: an operand that is not there: %5",
            ),
            (
                ("bar.sync 3, 128;", "mov.b32 %0}, {%1;"),
                "needs a GPU: line 15: not emulated: ",
            ),
            (("f32 %0, [%1]", "v2.f32 %0, [%1]"), "needs a GPU: line 18: not emulated: ld.shared.v2.f32"),
            (("f32 %0, [%1]", 'f32 %0, ["); __asm__("%1]'), "needs a GPU: line 18: not emulated"),
        ],
        3,
    ),
)
def test_named_barriers_addresses_and_what_is_not_known(edit: tuple[str, str], told: str) -> None:
    found = emulated(Kernel("axpb", "cuda", PRODUCER.replace(*edit)), AXPB, "fp32", shapes=2)
    if not told:
        assert not isinstance(found, Rejection), found
        return
    assert isinstance(found, Rejection) and told in found.message
    assert (found.status is Status.UNSUPPORTED) == told.startswith("needs a GPU")


def test_a_route_that_is_not_emulated_hides_no_fault_of_another_one() -> None:
    source = edited(PRODUCER, "bar.sync 3, 128;", "wgmma.fence.sync.aligned;").replace("args", 'when = "n > 100"\nargs')
    plain = """[[launch]]
kernel = "plain"
when = "n <= 100"
grid = [1]
block = [128]
args = ["x", "b", "y", "alpha", "n"]
*/
extern "C" __global__ void plain(const T* x, const T* b, T* y, T alpha, int n) {
    if (threadIdx.x < n) y[threadIdx.x] = alpha * x[threadIdx.x] + b[threadIdx.x];
}
"""
    for wrong, status in ((plain, Status.UNSUPPORTED), (plain.replace("+ b", "- b"), Status.WRONG)):
        kernel = Kernel("axpb", "cuda", source.replace("*/\n", wrong, 1))
        found = emulated(kernel, AXPB, "fp32", shapes=({"n": 200}, {"n": 64}))
        assert isinstance(found, Rejection) and found.status is status, found


@pytest.mark.slow
@examples(100)
@given(st.data())
def test_whatever_stands_in_a_file_no_assembly_is_left(data: st.DataObject) -> None:
    """The text that the assembler of this machine would get, out of texts that are cut, doubled and mixed up
    anywhere."""
    text = SOURCE
    for _ in range(data.draw(st.integers(0, 4))):
        begin, length = data.draw(st.integers(0, len(text))), data.draw(st.integers(0, 60))
        new = data.draw(
            st.sampled_from(["", "{" * 40, "asm", '"', ")", ":", ";", "%", "%99999", "[%0]", "\\", "\n", "|"])
        )
        text = text[:begin] + new + text[begin + length :]
    marked = '# 1 "kernel.cu"\n' + text
    result = translated(marked, "kernel.cu")
    assert not {token.text for token in tokenized(result)} & ASSEMBLY
    assert result.count("\n") == marked.count("\n")


def edited(source: str, old: str, new: str) -> str:
    assert old in source
    return source.replace(old, new, 1)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "source", "dtype"), [("axpb", SOURCE, "fp32"), ("axpb", PRODUCER, "fp32"), ("matrix_mul", GEMM, "bf16")]
)
def test_the_instructions_that_are_checked_are_cudas(name: str, source: str, dtype: str) -> None:
    try:
        found = compile_cuda(Kernel(name, "cuda", source), AXPB if name == "axpb" else load(name), dtype)
    except UserError as error:
        pytest.skip(str(error))
    assert isinstance(found, CudaBuild), found
