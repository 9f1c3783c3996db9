"""Nasty input through the command line: one clear line and exit code 2, or a verdict and exit code 1; nothing stays."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from operators.plan.header import MAX_SOURCE_BYTES
from tests.choosing import some_slow
from tests.evo.test_cli import evo

AXPB = Path(__file__).parent / "data" / "axpb"
HEADER = '/*! evo\n[[launch]]\nkernel = "axpb"\nargs = ["x", "b", "y", "alpha", "n"]\n*/\n'
SIGNATURE = 'extern "C" void axpb(const T* x, const T* b, T* y, T alpha, int n)'
RIGHT = "for (int i = 0; i < n; i++) y[i] = store(load(alpha) * load(x[i]) + load(b[i]));"


def kernel(body: str, before: str = "") -> bytes:
    return f"{HEADER}{before}\n{SIGNATURE} {{ {body} }}\n".encode()


BAD_KERNELS = {
    "empty": (b"", "there is no header"),
    "too long": (kernel(RIGHT, "//" + "x" * 1_000_000), f"at most {MAX_SOURCE_BYTES} are allowed"),
    "header only": (HEADER.encode(), "'axpb' was not declared"),
    "unclosed": (HEADER.replace("*/", "").encode(), "close it with `*/`"),
    "too few arguments": (kernel(RIGHT).replace(b', "n"]', b"]"), "takes 5 parameters, the plan passes 4"),
    "unknown argument": (kernel(RIGHT).replace(b'"n"]', b'"m"]'), "unknown name `m`"),
    "huge expression": (kernel(RIGHT).replace(b'"n"]', b'"n**n**n**n"]'), "in magnitude with n = 40000"),
    "deep expression": (kernel(RIGHT).replace(b'"n"]', b'"' + b"(" * 3000 + b'n"]'), "at most 500 are allowed"),
    "deep header": (b"/*! evo\nx = " + b"[" * 2000 + b"\n*/\n", "brackets are open"),
    "endless key": (HEADER.replace("[[", "a" + ".a" * 16000 + " = 1\n[[").encode(), "a line of 32005 characters"),
    "many dots": (HEADER.replace("[[", "a" + ".a" * 1000 + " = 1\n[[").encode(), "more than 16 dots"),
    "all of the memory": (
        HEADER.replace("[[", '[[buffer]]\nname = "s"\ndtype = "fp32"\nshape = ["2 ** 34"]\n[[', 1).encode(),
        "its buffers take 64.00 GiB",
    ),
    "NUL in the header": (kernel(RIGHT).replace(b"axpb", b"ax\0pb"), "Illegal character"),
    "a file of ours": (kernel(RIGHT, '#include "/etc/passwd"'), "write the name of a header"),
    "endless instantiation": (
        kernel("y[0] = X<0>::v;", "template <long N> struct X { static constexpr long v = X<N + 1>::v; };"),
        "template instantiation depth",
    ),
    "exit": (kernel("_exit(0);", 'extern "C" void _exit(int);'), "it calls `_exit`"),
    "fork": (kernel(f"fork(); {RIGHT}", 'extern "C" int fork();'), "it calls `fork`"),
    "kill": (
        kernel("kill(getppid(), 9);", "#include <unistd.h>\n#include <csignal>"),
        "`#include <unistd.h>`: write the name",
    ),
    "writes to every descriptor": (
        kernel(
            'for (int f = 0; f < 64; f++) write(f, "correct", 7);', 'extern "C" long write(int, const void*, long);'
        ),
        "it calls `write`",
    ),
}


@pytest.mark.parametrize("name", BAD_KERNELS)
def test_a_bad_kernel_is_a_verdict(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    content, words = BAD_KERNELS[name]
    file = tmp_path / "kernel.cpp"
    file.write_bytes(content)
    code, out, err = evo(monkeypatch, capsys, "evaluate", str(AXPB), str(file))
    assert (code, err) == (1, "")
    assert out.startswith("screen: ")
    assert words in out


@pytest.mark.slow
def test_threads_are_no_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    file = tmp_path / "kernel.cpp"
    file.write_bytes(kernel(f"#pragma omp parallel for num_threads(2)\n{RIGHT}").replace(b"{ #", b"{\n#"))
    code, out, _ = evo(monkeypatch, capsys, "evaluate", str(AXPB), str(file))
    assert "screen: correct" in out
    assert "threads True" in out
    assert code == 0


@pytest.mark.parametrize(
    ("content", "words"),
    [(b"\x9f\xfe\x00", "is not UTF-8 text (byte 1)"), (None, "is not a regular file")],
    ids=["binary", "fifo"],
)
def test_what_is_no_text_is_no_kernel(
    content: bytes | None, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    file = tmp_path / "kernel.cpp"
    if content is None:
        os.mkfifo(file)
    else:
        file.write_bytes(content)
    assert_one_line(evo(monkeypatch, capsys, "evaluate", str(AXPB), str(file)), words)


ANSWER = "return alpha * x + b\n"
BAD_OPERATORS = {
    "raises": ("reference.py", ANSWER, 'raise RuntimeError("first\\nsecond")\n', ":5: reference() raised RuntimeError"),
    "exits": ("reference.py", ANSWER, "raise SystemExit(0)\n", "reference() raised SystemExit"),
    "exits on import": ("reference.py", "from torch import Tensor", "raise SystemExit(0)", "cannot be imported"),
    "one number": ("reference.py", ANSWER, "return (alpha * x + b).sum()\n", "it must be torch.float64 ["),
    "fp32": ("reference.py", ANSWER, "return (alpha * x + b).float()\n", "made `y` as torch.float32"),
    "a list": ("reference.py", ANSWER, "return (alpha * x + b).tolist()\n", "made `y` as list"),
    "other names": ("reference.py", ANSWER, 'return {"z": x}\n', "must return y by name, not z"),
    "not finite": ("reference.py", ANSWER, 'return x * float("nan")\n', "that are not finite"),
    "negative bound": ("reference.py", "return abs(alpha)", "return -abs(alpha)", "negative or not finite"),
    "wrong naive": ("naive.cpp", "+ load(b[i])", "", "naive.cpp: the naive kernel, which others"),
    "naive of no C++": ("naive.cpp", "phase++", "phase+++", "it does not build"),
    "cycle": ("operator.toml", "[dtypes]", '[derived]\np = "q"\nq = "p"\n[dtypes]', "unknown name `q`"),
    "negative shape": ("operator.toml", 'shape = ["n"]', 'shape = ["n - 50000"]', "is negative"),
}
BRIEF = ("raises", "exits on import", "fp32", "wrong naive", "naive of no C++", "cycle")


@pytest.mark.parametrize("name", some_slow(BAD_OPERATORS, BRIEF))
def test_a_bad_operator_folder_is_one_line(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    file, old, new, words = BAD_OPERATORS[name]
    folder = Path(shutil.copytree(AXPB, tmp_path / "my op", ignore=shutil.ignore_patterns("__pycache__")))
    text = (folder / file).read_text()
    assert old in text
    (folder / file).write_text(text.replace(old, new))
    (tmp_path / "kernel.cpp").write_bytes(kernel(RIGHT))
    assert_one_line(evo(monkeypatch, capsys, "evaluate", str(folder), str(tmp_path / "kernel.cpp")), words)


@pytest.mark.parametrize("file", ["operator.toml", "reference.py", "naive.cpp"])
@pytest.mark.parametrize("command", ["evaluate", "run"])
def test_a_missing_file_is_named(
    command: str, file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    folder = Path(shutil.copytree(AXPB, tmp_path / "mine"))
    (folder / file).unlink()
    (tmp_path / "kernel.cpp").write_bytes(kernel(RIGHT))
    rest = [str(tmp_path / "kernel.cpp")] if command == "evaluate" else ["--runs", str(tmp_path / "runs")]
    assert_one_line(evo(monkeypatch, capsys, command, str(folder), *rest), file)
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("text", "options", "words"),
    [
        ("operators = [", (), "not valid TOML"),
        ('budgt = 3\noperators = ["softmax"]', (), "`budgt`"),
        ("operators = 3", (), "`operators`"),
        ('operators = ["softmax"]\nsettings = 3', ("--set", "islands=2"), "`settings` is a table"),
        ('operators = ["softmax"]\n[settings]\nislands = 1000000000', (), "`islands`"),
        ('operators = ["softmax"]\n[budget]\nwall = 3', (), "budget.wall"),
        ('operators = ["softmax"]\n[budget]\nwall_s = -3', (), "budget.wall_s"),
        ('operators = ["softmax"]\n[budget]\nwall_s = nan', (), "budget.wall_s"),
        ('operators = ["softmax"]', ("--budget", "9" * 400 + "s"), "such as 60s"),
        ('operators = ["softmax"]', ("--set", "islands=" + "[" * 99999), "islands"),
        ("x = " + "[" * 30000, (), "not valid TOML"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_a_bad_config_is_one_line(
    text: str, options: tuple[str, ...], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    file = tmp_path / "config.toml"
    file.write_text(text)
    result = evo(monkeypatch, capsys, "run", "--config", str(file), "--runs", str(tmp_path / "runs"), *options)
    assert_one_line(result, words)
    assert not (tmp_path / "runs").exists()


def assert_one_line(result: tuple[int, str, str], words: str) -> None:
    code, out, err = result
    assert code == 2, (out, err)
    assert out == ""
    (line,) = err.strip().splitlines()
    assert words in line
