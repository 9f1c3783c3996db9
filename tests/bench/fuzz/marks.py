"""Code that leaves a mark on the machine wherever it is run: a file and a socket; kernels that hold it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

CODE = """
    lea path(%rip), %rdi
    mov $0x41, %esi
    mov $0600, %edx
    mov $2, %eax
    syscall
    mov $1, %edi
    mov $1, %esi
    xor %edx, %edx
    mov $41, %eax
    syscall
    mov %eax, %edi
    lea address(%rip), %rsi
    mov $110, %edx
    mov $49, %eax
    syscall
    xor %eax, %eax
    ret
address:
    .short 1
path_of_socket:
    .asciz "@MARK@.socket"
    .zero 108 - (. - path_of_socket)
path:
    .asciz "@MARK@"
"""
"""It opens a file that it makes, and binds a socket to a path, by system calls; for x86-64."""
SLED_BYTES = 4096


class Marks:
    """Places where marks appear."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "mark"
        listing, made = folder / "mark.s", folder / "mark.o"
        listing.write_text(CODE.replace("@MARK@", str(self._file)))
        subprocess.run(["as", listing, "-o", made], check=True)
        subprocess.run(["objcopy", "-O", "binary", "-j", ".text", made, folder / "mark.bin"], check=True)
        self.code = (folder / "mark.bin").read_bytes()

    def found(self) -> str:
        """The marks that have appeared since the last look, in words; empty: none."""
        places = (self._file, Path(f"{self._file}.socket"))
        seen = [path for path in places if os.path.lexists(path)]
        for path in seen:
            path.unlink()
        return " and ".join("a socket" if path.suffix else "a file" for path in seen)

    def source(self) -> str:
        """The code as a constant `sled` in the section of code, behind a sled of nops; `enter()` calls it."""
        code = b"\x90" * SLED_BYTES + self.code
        numbers = ",".join(map(str, code))
        return (
            f"struct Sled {{ unsigned char code[{len(code)}]; }};\n"
            f'__attribute__((section(".text"), used)) static const Sled sled = {{{{{numbers}}}}};\n'
            "static inline void enter() {\n"
            "    reinterpret_cast<void (*)()>(reinterpret_cast<unsigned long>(sled.code))();\n}\n"
        )

    def entries(self, data: bytes) -> tuple[int, ...]:
        """Offsets in a file of places in the sled."""
        begin = data.find(b"\x90" * 512)
        return tuple(begin + step for step in (0, 64, 500)) if begin >= 0 else ()
