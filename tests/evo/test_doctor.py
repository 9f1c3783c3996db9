"""The doctor's words on a GPU that is only pretended."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from evo import doctor
from fitness import install, targets
from fitness.cuda.compile import line
from fitness.profiling.roofline import Peaks
from fitness.sandbox.native import built
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
    monkeypatch.setattr(targets, "peaks", lambda target: peaks)
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
    monkeypatch.setattr(targets, "check_device", fail)
    found = doctor._torch()
    assert (found.state, found.detail) == ("absent", "it counts 3 instead of 4")


def having(monkeypatch: pytest.MonkeyPatch, driver: tuple[int, int] | None, **versions: str) -> None:
    """A machine with these packages, `_` for `-`."""
    for module in (doctor, line, install):
        monkeypatch.setattr(module, "installed", lambda name: versions.get(name.replace("-", "_"), ""))
    monkeypatch.setattr(doctor, "driver_cuda", lambda: driver)
    monkeypatch.setattr(line, "driver_cuda", lambda: driver)


def test_two_builds_of_one_package_are_a_clash(monkeypatch: pytest.MonkeyPatch) -> None:
    having(monkeypatch, (13, 0), cupy_cuda12x="14.2", cupy_cuda13x="14.2")
    found = doctor._cupy()
    assert found.state == "missing"
    assert found.detail == "cupy-cuda12x 14.2 and cupy-cuda13x 14.2 are one package in two builds"
    assert "pip uninstall -y cupy-cuda12x cupy-cuda13x && " in found.cure
    assert found.cure.endswith(install.installing("cuda13"))


def test_a_cupy_of_another_line_than_the_bindings_is_a_clash(monkeypatch: pytest.MonkeyPatch) -> None:
    having(monkeypatch, (12, 4), cupy_cuda12x="14.2", cuda_bindings="13.5.0")
    found = doctor._cupy()
    assert found.state == "missing"
    assert found.detail == "cupy-cuda12x 14.2 and cuda-bindings 13.5.0 are of different CUDA lines"
    assert found.cure.endswith(install.installing("cuda12"))


@pytest.mark.parametrize(("driver", "cure"), [((12, 4), "cuda12"), ((13, 1), "cuda13")])
def test_a_machine_with_a_driver_lacks_the_extra_of_its_line(
    monkeypatch: pytest.MonkeyPatch, driver: tuple[int, int], cure: str
) -> None:
    having(monkeypatch, driver)
    assert (doctor._cupy().state, doctor._cupy().cure) == ("absent", install.installing(cure))
    assert doctor._driver().detail == f"for CUDA {driver[0]}.{driver[1]}"


def test_a_whole_installation_of_either_line_is_fine(monkeypatch: pytest.MonkeyPatch) -> None:
    having(monkeypatch, (12, 4), cupy_cuda12x="14.2", cuda_bindings="12.9.10")
    assert (doctor._cupy().state, doctor._cupy().detail) == ("ok", "cupy-cuda12x 14.2")


def test_a_compiler_that_the_driver_cannot_load_from(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    having(monkeypatch, (12, 4), cuda_bindings="13.5.0")
    (tmp_path / "cuda_runtime_api.h").touch()
    monkeypatch.setattr("fitness.cuda.compile.nvrtc.include_folders", lambda: (tmp_path,))
    monkeypatch.setattr("fitness.cuda.compile.nvrtc.version", lambda: "13.0")
    found = doctor._nvrtc()
    assert found.state == "absent"
    assert found.detail == "the driver is for CUDA 12.4 and cannot load kernels of NVRTC 13.0"
    assert found.cure.endswith(install.installing("cuda12"))


def test_a_driver_that_is_too_old(monkeypatch: pytest.MonkeyPatch) -> None:
    having(monkeypatch, (11, 8))
    assert (doctor._driver().state, doctor._driver().detail) == ("absent", "for CUDA 11.8, which is too old")


def test_strangers_packages_are_removed_and_ours_comes_from_where_it_came(monkeypatch: pytest.MonkeyPatch) -> None:
    having(monkeypatch, None, runs="1.0")
    found = doctor._packages()
    assert (found.state, found.detail) == ("missing", "runs 1.0")
    assert "pip uninstall -y runs && " in found.cure
    assert found.cure.endswith(install.installing("", "--force-reinstall", "--no-deps"))


WITHOUT_NAMESPACES = """
import ctypes, os, pathlib, sys
outside = os.getuid()
try:
    if ctypes.CDLL(None).unshare(0x10000000):
        sys.exit("none to begin with")
    pathlib.Path("/proc/self/uid_map").write_text(f"1000 {outside} 1")
    pathlib.Path("/proc/sys/user/max_user_namespaces").write_text("0")
except OSError as error:
    sys.exit(str(error))
from evo import doctor
from fitness.sandbox.processes import run_confined
found = getattr(doctor, sys.argv[1])()
print(found.state, found.detail, found.cure, sep="\\n")
print(run_confined(["sh", "-c", "exit 7"], cwd="/tmp", timeout_s=60, alone=True).returncode)
"""
"""The doctor's finding, as a user who is not root and may make no user namespaces; and a program's code in a jail."""


@pytest.mark.parametrize(
    ("check", "says"),
    [("_threads", "nothing limits a kernel's threads"), ("_processes", "kernels run among all other processes")],
)
def test_a_machine_without_namespaces_is_told_and_still_works(check: str, says: str) -> None:
    built("native/jail.cpp")
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_NAMESPACES, check], capture_output=True, text=True, timeout=120
    )
    if done.returncode:
        pytest.skip(f"no user can be made here who may make no user namespaces: {done.stderr.strip()}")
    state, detail, cure, code = done.stdout.splitlines()
    assert state == "absent"
    assert says in detail
    assert code == "7"
    assert "user namespaces" in cure
