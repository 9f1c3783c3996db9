"""Peaks of a GPU are measured once, and again only to raise them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from fitness.cuda import peaks
from fitness.profiling.roofline import Peaks
from tests.cuda.test_target import H100

FIRST = Peaks("NVIDIA H100", 3000.0, 2800.0, {"fp32": 60_000.0}, 2.0, 5e7, 3350.0)


def test_peaks_are_kept_and_only_rise(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    results = iter([FIRST, replace(FIRST, read_gb_s=3100.0, copy_gb_s=2000.0, empty_us=3.0)])
    monkeypatch.setattr(peaks, "cache_folder", lambda: tmp_path)
    monkeypatch.setattr(peaks, "device_facts", lambda ordinal: H100)
    monkeypatch.setattr(peaks, "_measured", lambda ordinal: next(results))
    assert [peaks.peaks(0), peaks.peaks(0)] == [FIRST, FIRST]
    raised = replace(FIRST, read_gb_s=3100.0)
    assert peaks.remeasure(0) == raised
    assert peaks.peaks(0) == raised
    [file] = tmp_path.iterdir()
    file.write_text("{}")
    with pytest.raises(StopIteration):  # what cannot be read is measured anew
        peaks.peaks(0)
