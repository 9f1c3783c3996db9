"""Cubins are what a candidate's source makes of them: whatever they hold is read within bounds, or refused in words."""

from __future__ import annotations

import struct
from dataclasses import replace
from functools import cache
from io import BytesIO
from random import Random

import pytest
from elftools.elf.elffile import ELFFile
from hypothesis import given
from hypothesis import strategies as st

from fitness.cuda.compile.build import CudaBuild, compile_cuda
from fitness.cuda.compile.cubin import MAX_BYTES, Cubin, CubinError, read_cubin
from fitness.evaluation import Rejection, Status
from fitness.judging.signature import TableError
from operators.catalog import load
from operators.kernel import Kernel

SOURCE = load("softmax").naive("cuda")
TYPE = "void(const T*, T*, int, int)"


pytestmark = pytest.mark.usefixtures("headers")


@cache
def build() -> CudaBuild:
    found = compile_cuda(Kernel("softmax", "cuda", SOURCE), load("softmax"), "fp32")
    assert isinstance(found, CudaBuild), found
    return found


def with_shim(text: str) -> CudaBuild | Rejection:
    """The build of the naive kernel with this text in front of its code."""
    head, end, body = SOURCE.partition("*/\n")
    return compile_cuda(Kernel("softmax", "cuda", f"{head}{end}{text}\n{body}"), load("softmax"), "fp32")


def table(numbers: tuple[int, ...]) -> str:
    """A table of the candidate's own in place of the shim's, by specialisation."""
    values = ", ".join(map(str, numbers))
    return f"""namespace evo_shim {{
template <> struct Table<{TYPE}> {{ int v[{len(numbers)}]; }};
template <> struct Make<{TYPE}> {{ static constexpr Table<{TYPE}> table() {{ return {{{{{values}}}}}; }} }};
}}"""


POINTER = (2, 8, 1, 4)
RIGHT = (4, *POINTER, 1, *POINTER, 0, 0, 4, 3, 0, 0, 0, 4, 3, 0, 0)
TABLES = {
    "more than there are": (4_000_000, *RIGHT[1:]),
    "a negative number": (-1, *RIGHT[1:]),
    "longer than its data": (1000, *RIGHT[1:]),
    "no such kind": (4, 9, *RIGHT[2:]),
    "a negative kind": (4, -1, *RIGHT[2:]),
    "no such kind pointed to": (4, 2, 8, 77, *RIGHT[4:]),
    "a negative size": (4, 0, -8, *RIGHT[3:]),
    "a size that no number has": (4, 0, 1 << 30, *RIGHT[3:]),
    "empty": (0,),
    "one parameter less": (3, *RIGHT[1:16]),
    "a pointer less": (4, *RIGHT[1:6], 0, 4, 3, 0, 0, *RIGHT[11:]),
}


def test_the_right_table_may_be_anybodys() -> None:
    assert isinstance(with_shim(table(RIGHT)), CudaBuild)


@pytest.mark.parametrize("name", TABLES)
def test_a_table_of_a_candidates_own_is_refused_in_words(name: str) -> None:
    found = with_shim(table(TABLES[name]))
    assert isinstance(found, Rejection), name
    assert found.status is Status.INVALID and "the table of its parameters" in found.message


def test_a_kernel_whose_parameters_fill_no_table_has_none() -> None:
    source = SOURCE.replace('args = ["x", "y", "rows", "cols"]', "args = []")
    head, end, _ = source.partition("*/\n")
    body = 'extern "C" __global__ void softmax() {}\n'
    found = compile_cuda(Kernel("softmax", "cuda", f"{head}{end}{body}"), load("softmax"), "fp32")
    assert isinstance(found, CudaBuild), found
    assert set(map(len, found.params.values())) == {0}


def test_what_differs_in_a_section_alone_is_another_program() -> None:
    read = read_cubin(build().cubin)
    at = next(number for number, section in enumerate(read.sections) if section.is_code)
    for change in ({"alignment": 1024}, {"info": 1}, {"flags": 7}, {"size": 1}, {"name": ".text.other"}):
        sections = [*read.sections]
        sections[at] = replace(sections[at], **change)  # type: ignore[arg-type]
        assert Cubin(tuple(sections)).digest() != read.digest()


def test_where_names_lie_makes_no_other_program_but_what_they_name_does() -> None:
    read = read_cubin(build().cubin)
    at = next(number for number, section in enumerate(read.sections) if section.type == 2)  # SHT_SYMTAB
    data = bytearray(read.sections[at].data)

    def with_symbols() -> Cubin:
        table = replace(read.sections[at], data=bytes(data))
        return Cubin((*read.sections[:at], table, *read.sections[at + 1 :]))

    data[-24] += 1  # where the last symbol's name lies, as with a longer one ahead of it
    assert with_symbols().digest() == read.digest()
    data[-16] += 1  # its value
    assert with_symbols().digest() != read.digest()


def test_the_process_that_compiled_a_kernel_makes_no_other_program() -> None:
    read = read_cubin(build().cubin)

    def named(name: str, *more: str) -> bytes:
        sections = [replace(s, name=s.name.replace("softmax", name)) for s in read.sections]
        return Cubin((*sections, *(replace(sections[-1], name=f".text.{each}") for each in more))).digest()

    first = "_ZN2a146_GLOBAL__N__00000000_9_kernel_cu_472d0830_99997softmaxEPKf"
    other = "_ZN2a147_GLOBAL__N__00000000_9_kernel_cu_472d0830_147497softmaxEPKf"
    assert named("softmax") == read.digest() != named(first)
    assert named(first) == named(other)
    assert named(first) != named(first.replace("softmax", "softmix"))
    assert named(first) != named(first.replace("_ZN2a1", "_ZN2b1"))
    assert named(first, other) != named(other, first)


def everything(cubin: bytes) -> None:
    """Ask all that a build asks."""
    read = read_cubin(cubin)
    read.digest()
    read.code_bytes()
    read.instructions("sm_90a")
    with pytest.raises(TableError):
        read.parameters("softmax", "nobody")
    for symbol in shim_symbols():
        read.parameters("softmax", symbol)


@cache
def shim_symbols() -> tuple[str, ...]:
    table = ELFFile(BytesIO(build().cubin)).get_section_by_name(".symtab")
    return tuple(s.name for s in table.iter_symbols() if "evo_shim" in s.name)


def tolerated(cubin: bytes) -> bool:
    """Whether it was read; what is refused is refused in words."""
    try:
        everything(cubin)
    except (CubinError, TableError) as error:
        assert "its" in str(error) and len(str(error)) < 200
        return False
    return True


def test_a_cubin_is_read_as_elf_tools_read_it() -> None:
    assert shim_symbols() and tolerated(build().cubin)
    theirs = list(ELFFile(BytesIO(build().cubin)).iter_sections())
    ours = read_cubin(build().cubin).sections
    assert [s.name for s in ours] == [s.name for s in theirs]
    assert [s.size for s in ours] == [s["sh_size"] for s in theirs]
    assert [s.data for s in ours if s.data] == [s.data() for s in theirs if s["sh_type"] != "SHT_NOBITS" and s.data()]


@pytest.mark.parametrize("share", [0, 1, 4, 5, 16, 63, 64, 100, 1000, 2000, 4000])
def test_a_cubin_that_is_cut_off_is_refused(share: int) -> None:
    assert not tolerated(build().cubin[:share])


def test_sections_may_not_lie_over_each_other() -> None:
    cubin = bytearray(build().cubin)
    begin, count = struct.unpack_from("<Q", cubin, 40)[0], struct.unpack_from("<H", cubin, 60)[0]
    for number in range(1, count):
        struct.pack_into("<QQ", cubin, begin + 64 * number + 24, 0, len(cubin))
    with pytest.raises(CubinError, match="over each other"):
        read_cubin(bytes(cubin))


def test_a_large_cubin_is_not_even_looked_at() -> None:
    with pytest.raises(CubinError, match="at most 64"):
        read_cubin(bytes(MAX_BYTES + 1))


NUMBERS = (0, 1, 0x7F, 0xFF, 0x7FFFFFFF, 0xFFFFFFFF, (1 << 63) - 1, (1 << 64) - 1)


def mutated(random: Random) -> bytes:
    """A cubin with some of its numbers changed, those of its headers, symbols and notes first of all."""
    cubin = bytearray(build().cubin)
    begin = struct.unpack_from("<Q", cubin, 40)[0]
    for _ in range(random.choice((1, 1, 2, 5))):
        at = random.choice((random.randrange(64), random.randrange(begin, len(cubin)), random.randrange(len(cubin))))
        width = random.choice((1, 2, 4, 8))
        value = random.choice((random.choice(NUMBERS), random.getrandbits(64), len(cubin) - at, at))
        at = min(at - at % width, len(cubin) - width)
        cubin[at : at + width] = (value % (1 << 8 * width)).to_bytes(width, "little")
    end = random.choice((len(cubin), len(cubin), random.randrange(len(cubin))))
    return bytes(cubin[:end])


@pytest.mark.parametrize("count", [300, pytest.param(20_000, marks=pytest.mark.slow)])
def test_mutated_cubins_are_read_or_refused(count: int) -> None:
    random = Random(15)
    read = sum(tolerated(mutated(random)) for _ in range(count))
    assert 0 < read < count, "some of both"


@given(st.binary(max_size=300))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    for cubin in (data, build().cubin[:64] + data, b"\x7fELF\x02\x01" + data):
        assert not tolerated(cubin)
