"""Readers of texts that a stranger wrote, and texts that cost a careless reader the square of their length.

A text is a piece that is repeated, between a beginning that leads a reader to the place in question and an end that
disappoints it there.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from fitness.cpu.build import tidy_log
from fitness.cpu.gate import ALLOWED_SYMBOLS
from fitness.cpu.loops import vector_work
from fitness.cpu.profiler import parse_callgrind, parse_remarks
from fitness.cuda.compile.build import DIALECT, read_ptxas_log, scrub_log
from fitness.cuda.compile.nvrtc import FILE
from fitness.cuda.compile.ptx import rare, traits
from fitness.emulator.ptx.assembly import translated
from fitness.emulator.ptx.reading import NotEmulated, parse
from fitness.sandbox.source import forbidden, hoisted, smuggled, without_comments
from mutators.edits import AnswerError, Block, child_source, description, edited
from operators.catalog import load
from operators.errors import PlanError
from operators.plan.reading import parse_plan
from tests.garbage import no_garbage_collected

TIMES = 16
LEAST_S = 0.005
"""Least time that is taken for a reader: of what takes no time no growth can be told."""
PIECES = (
    " ", "\n", "\t", "a", "a ", "a\n", "_", "0", "9", ".", "a.", ".a", ". ", ",", ", ", ";", ";\n", ":", "a:", "::",
    "=", "= ", "-", "+", "*", "**", "/", "/*", "/**", "//", "/a", "\\", "\\\n", "\\ ", '"', '\\"', '"\\', "'",
    "\\'", '""', "`", "```", "~", "~~~ ", "|", "#", "# ", "@", "@a ", "%", "%[a", "%0", "$", "(", ")", "()", "[",
    "]", "[[", "{", "}", "{}", "{;", "<", ">", "<<<<<<< ", "R", 'R"', "u8", "é", "\x00", "\x0b", "\u2028",
)  # fmt: skip
"""Pieces of texts for every reader."""
SPLIT = "\N{SYMBOL FOR NEWLINE}"
"""Stands in a frame where the repeated piece goes."""


@dataclass(frozen=True)
class Reader:
    """A reader, and what it should be tried with."""

    read: Callable[[str], object]
    frames: tuple[str, ...] = (SPLIT,)
    """Texts around the pieces."""
    pieces: tuple[str, ...] = ()
    """Pieces of its own language."""
    refusal: type[Exception] | None = None
    """Error that it raises where it cannot read a text."""

    def spent_s(self, text: str) -> float:
        """The processor's time that it takes for a text, without Python's own for garbage, by now and then."""
        with no_garbage_collected():
            begin = time.process_time()
            with suppress(*(() if self.refusal is None else (self.refusal,))):
                self.read(text)
            return time.process_time() - begin

    def growth(self, frame: str, piece: str, size: int) -> float:
        """The factor by which it takes longer for a text that is TIMES as long, `size` characters in all."""
        short_s, long_s = (
            self.spent_s(frame.replace(SPLIT, piece * (count // len(piece)))) for count in (size // TIMES, size)
        )
        return long_s / max(short_s, LEAST_S)


_BODY = f".visible .entry f(.param .u64 p)\n{{\n{SPLIT}\n}}\n"
_OPERATOR, _SOURCE = "gelu", "x[i] = 1;\ny[i] = 2;\n"
_PTX_PIECES = (
    "add.", "add.a.", "add.rn .f32", "ld.", "ld.global.", '.pragma "', '.pragma "a";', ".loc 1 ",
    ".loc 1 1 1 inlined_at ", '.file 1 "', '.file 1 "/', "={", "= {", "}{", "a: ", "@p ", "@!p ", "mov.b64 a, b;",
    "mov.b64 a, 0", "mov.b64 a, 07,", "add.s64 a, a, ", "L1::", "%clock", "[ ", "[a", "cp.async.", "mma.sync.",
    "$a:",
)  # fmt: skip
_ASM_PIECES = (
    ".reg .b32 a;", ".reg .b32 a<9>;", "a<256>,", "a<4095>,", "{}", "a:;", "@p ", "mov.b32 a, b;", "[a+", "{a,",
    "a|", "!a", "0x1,", "1.0e", "%%", "%[a]", "%0, ",
)  # fmt: skip
_CPP_PIECES = (
    "#include <", "#include <a>\n", "#include <a/", "#pragma omp\n", "_Pragma(", '_Pragma("omp")',
    "__has_include (", "\\\n\\\n", "a\\\n", "asm(", "asm volatile ", "section(", 'section("a"', "# 1 \"",
    '# 1 "a\n', '# 1 "kernel.cu"\n', 'asm("" : ', "asm(/*", "1'", "1e+", "L'", 'u8"', "%:", "??=", "/*\n",
)  # fmt: skip
_LOG_PIECES = (
    "ptxas ", "ptxas error ", "error ", "error : ", "error\n", "fatal ", "Instruction '", "Instruction 'a",
    "Feature '.", 'Input name expression was: "', "Compiling entry function '", "Compiling entry function 'a'",
    "1 bytes ", "0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads", "kernel.cu(1): ",
    "kernel.cu(1): error: a\n\n", "kernel.cu(1): error #", "b.h(1): error: /a/b\n\n", "\n \n", "/a/b", "/a-", "//a",
    "used 1 ", "x(1): error: a\n\n", "__nv_name_map(2): error: Input name expression was: \"\n\n",
)  # fmt: skip
_LISTING_PIECES = (
    " 0:\tjmp 0 <a>\n", " 0:\tlock ", "lock ", "rep", "0 <a>:\n", "0 <", " 0: R_X ", " 0: R_X a\n",
    " 1:\tvaddps %ymm0\n", "# 0 <", "vadd", "vcmp", "Disassembly of section\n", " 1:\tcall a\n\t\t\t1: R_X\tsin\n",
)  # fmt: skip
_ANSWER_PIECES = (
    "<<<<<<< SEARCH\n", "=======\n", ">>>>>>> REPLACE\n", "```cpp\n", "``` ", "```a", "change", "change:",
    "change :\n", "* ", "*\n", "> ", "<think>", "<think>\n", "</think>", "x\n", "x[i] = 1;\n", "/*! evo",
    "<<<<<<< SEARCH\na\n=======\n>>>>>>> REPLACE\n",
)  # fmt: skip
_PLAN_PIECES = (
    "[[launch]]\n", "[a]\n", "[a.b]\n", "a = 1\n", "a=[\n", "a = [1]\n", '"""', "'''", '"a" = 1\n', "a.a", "[[",
    "{a=", "# a\n", '\\"', '"\\n', "a = ", "*/", "/*! evo ", "\r\n",
)  # fmt: skip
READERS = {
    "traits of PTX": Reader(traits, (_BODY, SPLIT), _PTX_PIECES),
    "flags of PTX": Reader(lambda text: rare(text, file=FILE), (_BODY, SPLIT), _PTX_PIECES),
    "inline PTX": Reader(
        lambda text: parse(text, (), ()),
        (SPLIT, f"{{ {SPLIT}; }}", f"mov.b32 {SPLIT};", f".reg .b32 {SPLIT};"),
        _ASM_PIECES,
        NotEmulated,
    ),
    "asm statements": Reader(
        lambda text: translated(text, FILE),
        (f'# 1 "{FILE}"\n{SPLIT}', f'# 1 "{FILE}"\nasm("{SPLIT}" : );'),
        _CPP_PIECES,
    ),
    "source": Reader(lambda text: forbidden(text, FILE, DIALECT), (SPLIT, f"#define A {SPLIT}"), _CPP_PIECES),
    "headers of a source": Reader(hoisted, (SPLIT, f"#include <a>{SPLIT}"), _CPP_PIECES),
    "words of a source": Reader(without_comments, (SPLIT,), _CPP_PIECES),
    "preprocessed source": Reader(smuggled, (SPLIT, f"section({SPLIT}"), _CPP_PIECES),
    "errors of NVRTC": Reader(
        lambda text: scrub_log(text, ("f",), ()),
        (
            SPLIT,
            f"ptxas {SPLIT}",
            f"kernel.cu(1): error: {SPLIT}",
            f"ptxas error : Instruction '{SPLIT}",
            f'__nv_name_map(2): error: Input name expression was: "{SPLIT}',
        ),
        _LOG_PIECES,
    ),
    "facts of ptxas": Reader(read_ptxas_log, (SPLIT, f"Compiling entry function 'f'{SPLIT}"), _LOG_PIECES),
    "errors of g++": Reader(tidy_log, (SPLIT, f"/{SPLIT}"), ("/a", "/ld:", "kernel.cpp", "/usr/bin/", "kernel.")),
    "remarks of g++": Reader(
        parse_remarks, (SPLIT, f"kernel:1:1: missed: {SPLIT}"), ("kernel:1:1: ", "kernel:", "1:", "missed: ")
    ),
    "symbols": Reader(
        ALLOWED_SYMBOLS.fullmatch,
        (f"__{SPLIT}x", f"_ZGV{SPLIT}!", f"GOMP_parallel{SPLIT}!", f"omp_{SPLIT}!"),
        ("si", "sf", "fixdfti", "add", "_start", "_end", "loop", "lock", "nest_", "_nest_lock"),
    ),
    "machine code": Reader(
        vector_work, (f"0 <a>:\n{SPLIT}", f"0 <a>:\n 0:\t{SPLIT}", f"0 <a>:\n 0:\tjmp {SPLIT}"), _LISTING_PIECES
    ),
    "callgrind": Reader(
        parse_callgrind,
        (f"events: Ir\n{SPLIT}",),
        ("fn=a\n", "fl=/a/b\n", "calls=1\n", "1 1\n", "ob=kernel.so\n", "cfn=a\n", "="),
        ValueError,
    ),
    "answers": Reader(
        lambda text: child_source(_SOURCE, text),
        (
            SPLIT,
            f"```{SPLIT}`",
            f"<<<<<<< SEARCH\n{SPLIT}",
            f"```\n{SPLIT}",
            f"<<<<<<< SEARCH\n{SPLIT}\n=======\n>>>>>>> REPLACE\n",
        ),
        _ANSWER_PIECES,
        AnswerError,
    ),
    "edits of a long file": Reader(
        lambda text: edited(text, [Block((*text.split("\n")[: text.count("\n") // 2], "!"), ())]),
        (f"{SPLIT}\n", f"a b c d e f g h i j k l m n o p q r s t\n{SPLIT}\n"),
        ("x\n", "\n", "x x x x x x\n", "}\n}\n\n"),
        AnswerError,
    ),
    "descriptions of answers": Reader(lambda text: description(text, ""), (SPLIT, f"change{SPLIT}"), _ANSWER_PIECES),
    "plans": Reader(
        lambda text: parse_plan(text, load(_OPERATOR), "cuda"),
        (SPLIT, f"/*! evo {SPLIT} */", f"/*! evo\na = {SPLIT}\n*/", f'/*! evo\na = """{SPLIT}"""\n*/'),
        _PLAN_PIECES,
        PlanError,
    ),
}
