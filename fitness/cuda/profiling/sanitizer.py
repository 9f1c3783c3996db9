"""compute-sanitizer over a kernel on small shapes: accesses out of bounds, races, barriers, memory never written."""

from __future__ import annotations

import re
import struct
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from fitness.cuda.compile.program import KernelCall, Program
from fitness.cuda.profiling.solo import ALIGNMENT, DONE, Solo, SoloRun
from fitness.cuda.profiling.tools import find_tool, watch, write_solo
from fitness.evaluation import Rejection, Status
from fitness.judging.device import KernelFault
from fitness.sandbox.processes import ProcessOutcome

TIMEOUT_S = 30.0
"""Time limit of all tools, which run at the same time. What they have found by then counts."""
FOUND = 86
"""Exit code of a tool that found something."""
TOOLS: dict[str, tuple[Status, str]] = {
    "memcheck": (Status.RUNTIME_ERROR, "reads or writes where it must not"),
    "racecheck": (Status.WRONG, "lets threads race for shared memory, where a barrier or __syncwarp() is missing"),
    "synccheck": (Status.RUNTIME_ERROR, "uses a barrier that not all of its threads reach"),
    "initcheck": (Status.WRONG, "reads global memory that nobody has written"),
}
"""Status that a finding leads to, and its words."""
_TWO, _ZERO = struct.pack("<q", 2), struct.pack("<f", 0)
_LINE = re.compile(r"^=========\s?(.*)$", re.MULTILINE)
_HAZARDS = re.compile(r"RACECHECK SUMMARY: (\d+) hazards? displayed")
"""Warnings count: threads of one warp do not run in step either, since Volta."""
_ERRORS = re.compile(r"ERROR SUMMARY: (\d+) errors?")
_FOUND_SO_FAR = re.compile(
    r"^=========\s+(?:(?:Error|Warning): Race reported|Invalid |Uninitialized |Barrier error)", re.MULTILINE
)
_UNSUPPORTED = (
    "Device not supported",
    "device is not supported",
    "Internal Sanitizer Error",
    "requires a newer driver",
)


@dataclass(frozen=True)
class SanitizerFinding:
    """Result of one tool."""

    tool: str
    rejection: Rejection | None = None
    lack: str = ""
    """Why it told nothing; empty when it did."""


class Sanitizer:
    """All tools on one device. Whether they find anything there at all is tried once."""

    def __init__(self, ordinal: int, harness: bytes, folder: Path) -> None:
        """`harness` is the compiled form of harness.cu; scratch files go below `folder`."""
        self._folder = folder
        launch = KernelCall("flush_write", (("buffer", "small"), _TWO, _ZERO), (1, 1, 1), (32, 1, 1), (), 0, False)
        run = SoloRun(Program((), (launch,), ()), {"small": ALIGNMENT}, {})
        self._control = Solo(ordinal, harness, {"flush_write": "flush_write"}, (), (run,))
        """Writes 32 bytes into a buffer of 16."""
        self._lack: str | None = None

    def examine(self, solo: Solo) -> list[SanitizerFinding]:
        """Every tool over the same calls, at the same time, each in processes of its own."""
        if self._lack is None:
            (control,) = self._run(self._control, ["memcheck"])
            self._lack = control.lack or ("" if control.rejection else "compute-sanitizer misses a planted error here")
        if self._lack:
            return [SanitizerFinding(tool, lack=self._lack) for tool in TOOLS]
        return self._run(solo, list(TOOLS))

    def _run(self, solo: Solo, tools: Sequence[str]) -> list[SanitizerFinding]:
        path = find_tool("compute-sanitizer")
        if path is None:
            return [SanitizerFinding(tool, lack="compute-sanitizer is not installed") for tool in tools]
        with tempfile.TemporaryDirectory(dir=self._folder) as scratch, ThreadPoolExecutor(len(tools)) as threads:
            file = write_solo(solo, Path(scratch))

            def run(tool: str) -> SanitizerFinding:
                here = Path(scratch, tool)
                here.mkdir()
                options = ("--error-exitcode", str(FOUND), "--report-api-errors", "no", "--print-limit", "3")
                command = (path, "--tool", tool, "--target-processes", "all", *options)
                return read(tool, watch(command, file, scratch=here, timeout_s=TIMEOUT_S))

            return list(threads.map(run, tools))


def audited(findings: Sequence[SanitizerFinding], shapes: str) -> dict[str, str]:
    """Facts for the verdict: what was looked for in vain. Raises KernelFault with the first thing found."""
    for finding in findings:
        if finding.rejection:
            raise KernelFault(finding.rejection.status, finding.rejection.message)
    clean = [finding.tool for finding in findings if not finding.lack]
    lacks = list(dict.fromkeys(finding.lack for finding in findings if finding.lack))
    said = [f"{', '.join(clean)} find nothing on {shapes}"] if clean else []
    return {"sanitizer": "; ".join([*said, *(f"not run: {lack}" for lack in lacks)])}


def read(tool: str, outcome: ProcessOutcome) -> SanitizerFinding:
    """A verdict needs evidence: a finding, or that every call ended and nothing was found."""
    found = _HAZARDS if tool == "racecheck" else _ERRORS
    count = found.search(outcome.output)
    status, meaning = TOOLS[tool]
    if outcome.timed_out and _FOUND_SO_FAR.search(outcome.output):
        return SanitizerFinding(
            tool, Rejection(status, f"compute-sanitizer's {tool}: it {meaning}: {_first(outcome.output)}")
        )
    if outcome.timed_out:
        return SanitizerFinding(tool, lack=f"{tool} did not finish within {TIMEOUT_S:.0f} s")
    if any(text in outcome.output for text in _UNSUPPORTED):
        return SanitizerFinding(tool, lack="compute-sanitizer does not support this device")
    if count and int(count[1]):
        return SanitizerFinding(
            tool, Rejection(status, f"compute-sanitizer's {tool}: it {meaning}: {_first(outcome.output)}")
        )
    if count and DONE in outcome.output and outcome.returncode in (0, FOUND):
        return SanitizerFinding(tool)
    said = " ".join(_LINE.sub(r"\1", outcome.output).split())[-200:]
    return SanitizerFinding(tool, lack=f"{tool} failed: {said or f'exit code {outcome.returncode}'}")


def _first(output: str) -> str:
    """The first finding, without the frames of our own process."""
    lines: list[str] = []
    for line in _LINE.findall(output):
        text = line.strip()
        if text.startswith(("COMPUTE-SANITIZER", "ERROR SUMMARY", "RACECHECK SUMMARY")):
            continue
        if text.startswith(("Saved host backtrace", "Host Frame")) or (lines and not text):
            break
        if text:
            lines.append(text)
    return "; ".join(lines)[:400]
