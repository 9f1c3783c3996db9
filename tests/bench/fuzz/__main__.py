"""Put changed objects, images, cubins, PTX, kernel files, tables and plans through the engine's own doors.

    python -m tests.bench.fuzz --cases 10000 --seed 1
    python -m tests.bench.fuzz --seed 1 --only image:4711

Every case meets the code that the engine meets it with: it is built, and if nothing refuses it before, mapped and run
by the runner, the emulator or the driver of profiles. Where only an artefact is changed, a stand-in hands it out in the
compiler's place. Told are, by kind, how many were built and run, escapes (the file or the socket appeared that code in
every artefact makes wherever it is entered outside of confinement), engine errors (an exception other than a verdict,
or memory that our process has not, or no verdict within two minutes) and the slowest case. There are none of the former
two. A case is repeated by its seed, kind and number.

The folder and tests/readers.py can be copied into an older checkout, down to c84dd60, and find there what was mended
since.
"""

from __future__ import annotations

import argparse
import json
import resource
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from types import FrameType

from fitness.cuda.compile.nvrtc import Compiled
from tests.bench.fuzz import texts
from tests.bench.fuzz.doors import CpuDoor, CudaDoor, EmulationDoor, Met, ProfileDoor
from tests.bench.fuzz.elf import Sample
from tests.bench.fuzz.marks import Marks
from tests.readers import PIECES, READERS, SPLIT

LIMIT_S = 120
LONGEST = 1 << 18
"""Characters of a text for a reader: as many as a kernel file may have bytes."""
ROOM_BYTES = 6 << 30
"""Memory that our process may map beside what it has mapped at the beginning."""
SHARES = {
    "image": 15, "object": 15, "object ungated": 10, "table bytes": 5, "attributes": 4, "headers": 3, "assembly": 3,
    "tables": 3, "plan": 10, "cuda plan": 4, "cubin": 10, "cuda table": 3, "ptx": 3, "log": 1, "cuda source": 1,
    "readers": 10,
}  # fmt: skip
"""Shares of 100 cases."""


class Overdue(BaseException):
    """There is no verdict in time; nothing catches it by mistake."""


@dataclass
class Tally:
    """Outcomes of the cases of one kind."""

    cases: int = 0
    built: int = 0
    ran: int = 0
    escapes: list[str] = field(default_factory=list)
    errors: Counter[str] = field(default_factory=Counter)
    first: dict[str, str] = field(default_factory=dict)
    """By error, the first case that had it."""
    slowest: tuple[float, str] = (0.0, "")


class Fuzzer:
    """Makes and judges cases. What a case is, follows from the seed, its kind and its number."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.marks = Marks(folder)
        self._seed = seed
        self._cpu, self._cuda = CpuDoor(folder / "build"), CudaDoor()
        self._sources = [texts.kernel(self.marks.source() + text) for text in texts.CPU_SEEDS]
        self._files = [self._cpu.captured(source) for source in self._sources]
        self._samples = {
            name: [self._sample(files[name]) for files in self._files] for name in ("kernel.o", "kernel.so")
        }
        self._emulation = EmulationDoor(folder / "build")
        self._emulated_sources = [
            texts.cuda_kernel(self.marks.source() + text, body) for text, body in texts.EMULATED_SEEDS
        ]
        self._emulated_files = [self._emulation.captured(source) for source in self._emulated_sources]
        self._emulated_samples = {
            name: [self._sample(files[name]) for files in self._emulated_files] for name in ("kernel.o", "kernel.so")
        }
        self._profile = ProfileDoor(folder / "build", self._sources[0])
        self._made = [
            self._cuda.captured(texts.cuda_kernel(text)) for text in ("", "__constant__ float w[] = {1, 2};\n")
        ]
        self._cubins = [Sample(made.cubin) for made in self._made]
        self._ways: dict[str, Callable[[Random], Met]] = {
            "image": lambda random: self._artefact(random, "kernel.so"),
            "object": lambda random: self._artefact(random, "kernel.o"),
            "object ungated": lambda random: self._artefact(random, "kernel.o", gated=False),
            "emulated image": lambda random: self._emulated(random, "kernel.so"),
            "emulated object": lambda random: self._emulated(random, "kernel.o"),
            "emulated object ungated": lambda random: self._emulated(random, "kernel.o", gated=False),
            "profiled image": lambda random: self._profile.judge(
                random.choice(self._samples["kernel.so"]).mutated(random)
            ),
            "table bytes": self._table_bytes,
            "attributes": lambda random: self._source(random, texts.DECLARED),
            "headers": lambda random: self._source(random, texts.INCLUDES),
            "assembly": lambda random: self._source(random, (*texts.ASSEMBLY, *texts.INCLUDES[-12:])),
            "tables": self._tables,
            "plan": self._plan,
            "cuda plan": lambda random: self._handed(random, source=texts.plan(random, header=texts.CUDA_HEADER)),
            "cubin": lambda random: self._handed(random, cubin=True),
            "cuda table": lambda random: self._handed(random, table=True),
            "ptx": lambda random: self._handed(random, ptx=True),
            "log": lambda random: self._handed(random, log=True),
            "cuda source": self._cuda_source,
            "readers": self._readers,
        }

    def close(self) -> None:
        """It ends all processes."""
        self._cpu.close()
        self._cuda.close()

    def judge(self, kind: str, number: int) -> Met:
        """Judge one case. It raises what the engine raises."""
        return self._ways[kind](Random(f"{self._seed} {kind} {number}"))

    def _sample(self, data: bytes) -> Sample:
        return Sample(data, self.marks.entries(data))

    # --- the cpu target ---------------------------------------------------------------------------------------------

    def _artefact(self, random: Random, name: str, *, gated: bool = True) -> Met:
        at = random.randrange(len(self._files))
        changed = {name: self._samples[name][at].mutated(random)}
        with self._cpu.handed(self._files[at], changed, gated=gated):
            return self._cpu.judge(self._sources[at])

    def _emulated(self, random: Random, name: str, *, gated: bool = True) -> Met:
        at = random.randrange(len(self._emulated_files))
        changed = {name: self._emulated_samples[name][at].mutated(random)}
        with self._emulation.handed(self._emulated_files[at], changed, gated=gated):
            return self._emulation.judge(self._emulated_sources[at])

    def _profiled(self, random: Random) -> Met:
        return self._profile.judge(random.choice(self._samples["kernel.so"]).mutated(random))

    def _table_bytes(self, random: Random) -> Met:
        """The bytes of the shim's table, or what its symbol says, are changed in the object."""
        at = random.randrange(len(self._files))
        sample = self._samples["kernel.o"][at]
        data = bytearray(sample.data)
        symbols = sample.records["section"]
        place = data.find((5).to_bytes(4, "little") + (2).to_bytes(4, "little") + (8).to_bytes(4, "little"))
        assert place >= 0, "the table of five parameters, the first of which is a pointer"
        for _ in range(random.choice((1, 1, 3))):
            if random.random() < 0.2:
                random.choice(symbols).write(
                    data, random.choice(("bytes", "kind", "offset")), random.getrandbits(random.choice((3, 20, 64)))
                )
                continue
            word = place + 4 * random.choice((0, 0, *range(26)))
            data[word : word + 4] = random.choice(
                (random.randbytes(4), (1 << 22).to_bytes(4, "little"), b"\xff" * 4, b"\0" * 4, b"\5\0\0\0")
            )
        with self._cpu.handed(self._files[at], {"kernel.o": bytes(data)}):
            return self._cpu.judge(self._sources[at])

    def _source(self, random: Random, choices: tuple[str, ...]) -> Met:
        text = texts.lines(choices, random)
        marked = "" if choices[0].startswith("#") else self.marks.source() + (texts.CHOOSE if "choose" in text else "")
        return self._cpu.judge(texts.kernel(marked + texts.spoiled(text, random, share=0.3)))

    def _tables(self, random: Random) -> Met:
        text = texts.filled(texts.LIE, random) + texts.lines(texts.TABLES, random)
        return self._cpu.judge(texts.kernel(texts.spoiled(text, random, share=0.3)))

    def _plan(self, random: Random) -> Met:
        with self._cpu.handed(self._files[0], {"kernel.so": self._files[0]["kernel.so"]}):
            return self._cpu.judge(texts.kernel(header=texts.plan(random)))

    # --- the cuda target --------------------------------------------------------------------------------------------

    def _handed(
        self, random: Random, *, cubin: bool = False, table: bool = False, ptx: bool = False, log: bool = False,
        source: str = texts.CUDA_HEADER,
    ) -> Met:  # fmt: skip
        at = random.randrange(len(self._made))
        made = self._made[at]
        if cubin:
            made = replace(made, cubin=self._cubins[at].mutated(random))
        if table:
            made = replace(made, cubin=self._cuda_table(made, random))
        if ptx:
            text = made.ptx.replace("ret;", texts.lines(texts.CUDA_LINES, random) + "ret;")
            made = replace(made, ptx=texts.spoiled(text, random, share=1.0))
        if log:
            failed = {} if random.random() < 0.5 else {"cubin": b""}
            made = replace(made, log=texts.spoiled(made.log * random.choice((1, 50)), random, share=1.0), **failed)  # type: ignore[arg-type]
        return self._cuda.judge(source if source != texts.CUDA_HEADER else texts.cuda_kernel(), made)

    def _cuda_table(self, made: Compiled, random: Random) -> bytes:
        data = bytearray(made.cubin)
        place = data.find((5).to_bytes(4, "little") + (2).to_bytes(4, "little") + (8).to_bytes(4, "little"))
        assert place >= 0, "the table of five parameters, the first of which is a pointer"
        for _ in range(random.choice((1, 1, 3))):
            word = place + 4 * random.choice((0, 0, *range(26)))
            data[word : word + 4] = random.choice(
                (random.randbytes(4), (1 << 22).to_bytes(4, "little"), b"\xff" * 4, b"\0" * 4)
            )
        return bytes(data)

    # --- both -------------------------------------------------------------------------------------------------------

    def _readers(self, random: Random) -> Met:
        """One of the readers of `tests/readers.py` meets its pieces and those of all, each again and again."""
        reader = READERS[random.choice(list(READERS))]
        pieces = (*reader.pieces * 4, *PIECES)
        parts = (random.choice(pieces) * 2 ** random.randrange(12) for _ in range(random.randint(1, 12)))
        reader.spent_s(random.choice(reader.frames).replace(SPLIT, "".join(parts)[:LONGEST]))
        return Met(built=False, ran=False, said="")

    def _cuda_source(self, random: Random) -> Met:
        inside = random.random() < 0.4
        text = texts.spoiled(texts.lines(texts.CUDA_LINES, random), random, share=0.2)
        return self._cuda.judge(texts.cuda_kernel("" if inside else text, text if inside else ""))


def main(arguments: list[str]) -> int:
    """Fuzz, and print a line of JSON for every kind and one for all."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.fuzz", description=__doc__.partition("\n")[0])
    parser.add_argument("--cases", type=int, default=10000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kinds", nargs="*", default=list(SHARES), choices=list(SHARES))
    parser.add_argument("--only", help="one case, as KIND:NUMBER")
    chosen = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "build").mkdir()
        fuzzer = Fuzzer(Path(folder), chosen.seed)
        _, hard = resource.getrlimit(resource.RLIMIT_AS)
        resource.setrlimit(resource.RLIMIT_AS, (_mapped_bytes() + ROOM_BYTES, hard))
        signal.signal(signal.SIGALRM, _overdue)
        try:
            if chosen.only:
                kind, _, number = chosen.only.rpartition(":")
                print(fuzzer.judge(kind, int(number)), fuzzer.marks.found())
                return 0
            tallies = {kind: Tally() for kind in chosen.kinds}
            for kind, number in _cases(chosen.kinds, chosen.cases):
                _judged(fuzzer, kind, number, tallies[kind])
        finally:
            fuzzer.close()
    return _told(tallies)


def _cases(kinds: list[str], cases: int) -> Iterator[tuple[str, int]]:
    whole = sum(SHARES[kind] for kind in kinds)
    for kind in kinds:
        for number in range(round(cases * SHARES[kind] / whole)):
            yield kind, number


def _judged(fuzzer: Fuzzer, kind: str, number: int, tally: Tally) -> None:
    name, begin = f"{kind}:{number}", time.monotonic()
    tally.cases += 1
    signal.alarm(LIMIT_S)
    try:
        met = fuzzer.judge(kind, number)
        tally.built += met.built
        tally.ran += met.ran
    except (Exception, Overdue) as error:  # noqa: BLE001 (the border to the engine, which raises nothing)
        place = traceback.extract_tb(error.__traceback__)[-1]
        what = f"{type(error).__name__}: {str(error)[:80]} at {Path(place.filename).name}:{place.lineno}"
        tally.errors[what] += 1
        tally.first.setdefault(what, name)
    finally:
        signal.alarm(0)
    if mark := fuzzer.marks.found():
        tally.escapes.append(f"{name}: {mark}")
    tally.slowest = max(tally.slowest, (round(time.monotonic() - begin, 3), name))


def _told(tallies: dict[str, Tally]) -> int:
    for kind, tally in tallies.items():
        found = {"kind": kind, "cases": tally.cases, "built": tally.built, "ran": tally.ran}
        found |= {"escapes": len(tally.escapes), "engine_errors": sum(tally.errors.values())}
        found |= {"slowest_s": tally.slowest[0], "slowest": tally.slowest[1]}
        print(json.dumps(found))
        for escape in tally.escapes[:5]:
            print(f"  escaped: {escape}")
        for what, count in tally.errors.most_common(10):
            print(f"  {count} x {what}, first {tally.first[what]}")
    every = list(tallies.values())
    escapes, errors = sum(len(t.escapes) for t in every), sum(sum(t.errors.values()) for t in every)
    totals = {
        "cases": sum(t.cases for t in every),
        "built": sum(t.built for t in every),
        "ran": sum(t.ran for t in every),
    }
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    slowest = max((t.slowest for t in every), default=(0.0, ""))
    print(json.dumps(totals | {"escapes": escapes, "engine_errors": errors, "slowest": slowest, "peak_mib": peak}))
    return int(bool(escapes or errors))


def _mapped_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


def _overdue(_: int, __: FrameType | None) -> None:
    raise Overdue(f"no verdict within {LIMIT_S} s")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
