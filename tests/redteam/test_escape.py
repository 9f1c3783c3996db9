"""Attempts to get at a file or at the environment of the search, and bombs: nothing comes out, nothing stays."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator
from pathlib import Path

import pytest

from fitness.cpu import build
from fitness.evaluation import Status
from operators.kernel import Kernel
from tests.choosing import some_slow
from tests.redteam.arena import HERE, Arena, Entrant, Secret, canaries, short_timings
from tests.redteam.processes import adopt_orphans, descendants, left_over
from tests.redteam.test_redteam import IN_TEST_ESCAPE, marked

IN_FILE, IN_ENVIRONMENT = "planted-in-a-file-3f9c", "planted-in-the-environment-b71e"
NEXT_VERDICT_S = 20.0
RIGHT = "for (int i = 0; i < n; i++) y[i] = alpha * x[i] + b[i];"
SHOWN = """
// What was found goes into the output, whose first wrong element the verdict quotes; nothing found: a right result.
static void show(const char* found, T* y, int n) {
    for (int i = 0; i < n && found && found[i]; i++) y[i] = found[i];
}
"""


@pytest.fixture(scope="module")
def arena(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Arena]:
    secret = Secret.planted(tmp_path_factory.mktemp("secret"), IN_FILE)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PLANTED", IN_ENVIRONMENT)
        for place, name, value in short_timings():
            patch.setattr(place, name, value)
        with Arena(tmp_path_factory.mktemp("build"), secret) as made:
            yield made


def kernel(before: str, body: str = RIGHT, *, parts: tuple[str, ...] = ()) -> str:
    header = '/*! evo\n[[launch]]\nkernel = "axpb"\nargs = ["x", "b", "y", "alpha", "n"]\n*/\n'
    texts = "".join((HERE / "parts" / f"{name}.hpp").read_text() for name in parts)
    return (
        f'{header}{texts}{before}\nextern "C" void axpb(const T* x, const T* b, T* y, T alpha, int n) {{\n{body}\n}}\n'
    )


def embedded(path: str) -> str:
    """A kernel with a file in a section, by way of a section's name; shows the first bytes."""
    name = f'.rodata\\nplanted_bytes: .incbin \\"{path}\\"\\n.byte 0\\n#'
    declared = 'extern "C" __attribute__((visibility("hidden"))) const char planted_bytes[];'
    return kernel(
        f'__attribute__((section("{name}"), used)) static const int there = 1;\n{declared}{SHOWN}',
        f"{RIGHT}\n    show(planted_bytes, y, n);",
    )


ENVIRONMENT_IN_MEMORY = """
static const char* planted() {
    const volatile walk::Word* p = static_cast<const walk::Word*>(__builtin_frame_address(0));
    while (p[0] != 3 || p[2] != 4 || p[3] != 56 || p[4] != 5) p++;  // the vector above the environment
    while (p[-1] != 0 || p[-2] < 0x7f0000000000) p--;
    for (p -= 2; p[0] > 0x7f0000000000; p--)
        if (const char* text = reinterpret_cast<const char*>(p[0]); text[0] == 'P' && text[1] == 'L') return text;
    return nullptr;
}
"""
FILE_BY_SYSTEM_CALL = """
static const char* planted(const char* path, char* room) {
    const long file = system_call<2>(reinterpret_cast<long>(path), 0, 0);
    if (file < 0 || system_call<0>(file, reinterpret_cast<long>(room), 64) <= 0) return nullptr;
    return room;
}
"""
BY_HAND = '\n    char room[65] = {};\n    show(planted("%s", room), y, n);'
ATTEMPTS = {
    "included": kernel('#include "@SECRET@"'),
    "included by macro": kernel('#define FILE_NAME "@SECRET@"\n#include FILE_NAME'),
    "quoted by the compiler": kernel('#line 1 "@SECRET@"\nint broken = ;'),
    "quoted after a line marker": kernel('# 1 "@SECRET@"\nint broken = ;'),
    "environment included": kernel('#include "/proc/self/environ"'),
    "environment quoted": kernel('#line 1 "/proc/self/environ"\nint broken = ;'),
    "file embedded": embedded("@SECRET@"),
    "environment embedded": embedded("/proc/self/environ"),
    "environment of our process embedded": embedded(f"/proc/{os.getpid()}/environ"),
    "file opened": kernel(FILE_BY_SYSTEM_CALL + SHOWN, RIGHT + BY_HAND % "@SECRET@", parts=("system_call",)),
    "environment opened": kernel(
        FILE_BY_SYSTEM_CALL + SHOWN, RIGHT + BY_HAND % f"/proc/{os.getpid()}/environ", parts=("system_call",)
    ),
    "environment found in memory": kernel(
        ENVIRONMENT_IN_MEMORY + SHOWN, f"{RIGHT}\n    show(planted(), y, n);", parts=("elf_walk",)
    ),
    "environment asked for": kernel(
        f"#include <cstdlib>\n{SHOWN}", f'{RIGHT}\n    show(std::getenv("PLANTED"), y, n);'
    ),
}


@pytest.mark.parametrize("name", some_slow(ATTEMPTS, 2))
def test_no_secret_comes_out(name: str, arena: Arena, capfd: pytest.CaptureFixture[str]) -> None:
    source = ATTEMPTS[name].replace("@SECRET@", str(arena.secret.path))
    result = arena.judge(Kernel("axpb", "cpu", source)).evaluation
    printed = "".join(capfd.readouterr())
    for text in (IN_FILE, IN_ENVIRONMENT, "constexpr int planted"):
        assert text not in repr(result)
        assert text not in printed
        assert not [path for path in files(arena.folder) if text.encode() in path.read_bytes()]
    # `wrong` would say that something was found and shown.
    assert result.status is not Status.WRONG, result.message


def files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


OPEN_MARKER = b"\xbe\x41\0\0\0\xba\x80\x01\0\0\xb8\x02\0\0\0\x0f\x05\xc3"
"""`open(rdi, O_WRONLY | O_CREAT, 0600)` by a system call, and back, in x86-64's machine code."""
GUESSED = 0x5000
"""An address in the sled, wherever the linker puts it; 0xd000 is one of constant data behind it."""


def early(marker: Path, hook: str) -> str:
    """A kernel whose machine code makes a file, wherever it is entered, and which has a hook that enters it."""
    text = os.fsencode(marker) + b"\0"
    tail = b"\x48\x8d\x3d" + len(OPEN_MARKER).to_bytes(4, "little") + OPEN_MARKER + text
    numbers = ", ".join(map(str, tail))
    sled = f"static constexpr unsigned char code[] = {{{numbers}}};\nEVO_SLED(code);\n"
    return kernel(sled + hook, parts=("sled",))


def table(name: str) -> str:
    """A constant that is a relocation by which a loader calls the sled, in a section of this name."""
    return (
        "struct Rela { unsigned long place, kind; long addend; };\n"
        f'__attribute__((section("{name}"), used)) static const Rela hook[] = {{{{0xd000, 37, {GUESSED}}}}};\n'
    )


def pointer(name: str) -> str:
    return f'__attribute__((section("{name}"), used)) static const void* const entry = sled.code;\n'


ENTRY = "struct Entry { long tag, value; };\n"
HOOKS = {
    **{name: table(name) for name in (
        ".rela.init", ".rela.gnu.linkonce.t.x", ".rela.dyn", ".rela.text", ".rela.rodata", ".rela.data.rel.ro",
        ".rela.got", ".rela.plt", ".rela.iplt", ".rela.ifunc", ".rela.bss", ".rela.ctors", ".rela.tdata", ".rela.fini",
    )},
    **{name: pointer(name) for name in (
        ".init_array", ".init_array.00001", ".preinit_array", ".fini_array", ".ctors", ".dtors", ".init", ".got",
        ".got.plt", ".data.rel.ro.local.ctors",
    )},
    ".dynamic": f'{ENTRY}__attribute__((section(".dynamic"), used)) static const Entry hook[] = {{{{12, {GUESSED}}}}};',
    ".relr.dyn": '__attribute__((section(".relr.dyn"), used)) static const unsigned long hook[] = {0xd001};',
    "_init": 'extern "C" __attribute__((visibility("default"), used)) void _init() {\n'
    "    reinterpret_cast<void (*)()>(reinterpret_cast<unsigned long>(sled.code))();\n}\n",
    "constructor": "__attribute__((constructor)) static void first() {\n"
    "    reinterpret_cast<void (*)()>(reinterpret_cast<unsigned long>(sled.code))();\n}\n",
    "resolver": 'extern "C" int one() { return 1; }\nextern "C" int (*choose())() {\n'
    "    reinterpret_cast<void (*)()>(reinterpret_cast<unsigned long>(sled.code))();\n    return one;\n}\n"
    'extern "C" __attribute__((visibility("default"))) int chosen() __attribute__((ifunc("choose")));\n',
}  # fmt: skip
"""Sections that make a loader run code, or may."""
at_load = pytest.mark.skipif(platform.machine() != "x86_64", reason="its machine code is that of x86-64")


@at_load
@pytest.mark.parametrize("gated", [True, False], ids=["whole", "without the object's gate"])
@pytest.mark.parametrize("name", some_slow(HOOKS, (".init_array", ".rela.ifunc", "resolver")))
def test_nothing_of_a_kernel_runs_when_it_is_loaded(
    name: str, gated: bool, arena: Arena, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not gated:  # what the linker made must do no harm by itself
        monkeypatch.setattr(build, "section_objection", lambda _: None)
        monkeypatch.setattr(build, "objection", lambda _: None)
    marker = tmp_path / "escaped"
    result = arena.judge(Kernel("axpb", "cpu", early(marker, HOOKS[name])), confirm=False).evaluation
    assert not marker.exists()
    if gated and not name.startswith((".data.rel.ro", "_init")):
        assert result.status is Status.INVALID, result.message


@pytest.fixture(scope="module")
def warm(arena: Arena) -> Arena:
    """With the processes open that a stage keeps."""
    adopt_orphans()
    arena.judge(arena.stage("axpb").baseline, confirm=False)
    return arena


@pytest.mark.parametrize("bomb", [marked(canary) for canary in canaries() if canary.kind == IN_TEST_ESCAPE])
def test_a_bomb_is_a_verdict_and_leaves_nothing_behind(bomb: Entrant, warm: Arena) -> None:
    before = descendants()
    result = warm.fight(bomb).evaluation
    assert not left_over(before)
    after = warm.judge(Kernel("axpb", "cpu", kernel(f"// after {bomb.name}")), confirm=False)
    assert after.evaluation.correct, after.evaluation.message
    assert after.seconds < NEXT_VERDICT_S
    complaint = bomb.complaint(result, warm.secret)
    assert complaint is None, complaint
