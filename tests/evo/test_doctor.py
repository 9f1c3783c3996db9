"""What the doctor says of a GPU that is only pretended."""

from __future__ import annotations

from dataclasses import replace

import pytest

from evo import doctor
from fitness import catalog
from fitness.roofline import Peaks
from operators.errors import DeviceError

H100 = Peaks(
    device="NVIDIA H100",
    read_gb_s=3000.0,
    copy_gb_s=2800.0,
    gflop_s={"fp32": 60_000.0},
    empty_us=2.0,
    written_cache_bytes=5e7,
    ceiling_gb_s=3350.0,
)


def finding(monkeypatch: pytest.MonkeyPatch, peaks: Peaks) -> doctor.Finding:
    monkeypatch.setattr(doctor, "_has_gpu", lambda: True)
    monkeypatch.setattr(catalog, "peaks", lambda target: peaks)
    return doctor._peaks()


def test_peaks_of_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    found = finding(monkeypatch, H100)
    assert found.state == "ok"
    assert found.detail == "3000 GB/s read, 3350 promised, 2800 copied; Tflop/s at most: fp32 60"


@pytest.mark.parametrize(
    ("peaks", "words"),
    [
        (replace(H100, read_gb_s=1000.0), "the memory is slow"),
        (replace(H100, gflop_s={}), "arithmetic unknown"),
    ],
)
def test_a_gpu_that_others_use_or_that_nobody_knows(monkeypatch: pytest.MonkeyPatch, peaks: Peaks, words: str) -> None:
    found = finding(monkeypatch, peaks)
    assert (found.state, words in found.detail, bool(found.cure)) == ("absent", True, True)


def test_a_gpu_that_does_not_compute(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(target: str, *, computes: bool) -> None:
        raise DeviceError("it counts 3 instead of 4")

    monkeypatch.setattr(doctor, "_has_gpu", lambda: True)
    monkeypatch.setattr(catalog, "check_device", fail)
    found = doctor._torch()
    assert (found.state, found.detail) == ("absent", "it counts 3 instead of 4")


def test_two_builds_of_one_package_are_a_clash(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "_installed", lambda name: "14.2" if name.startswith("cupy-") else "")
    found = doctor._packages()
    assert found.state == "missing"
    assert "cupy-cuda12x 14.2 and cupy-cuda13x 14.2 are one package in two builds" in found.detail
