"""Loads this folder's kernel: `load()` returns a function over CUDA tensors of torch, or arrays of CuPy.

It compiles kernel.cu with NVRTC for the GPU that the first arrays lie on, launches what the plan says into the current
stream, and waits for nothing. It needs Python 3.11, the packages cuda-bindings and NVRTC of one CUDA line with its
headers (`pip install "cuda-bindings>=13,<14" "cuda-toolkit[cccl,cudart,nvrtc]>=13,<14"`), and torch or CuPy.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from threading import Lock
from typing import Any

from evo.packaging.runtime import native
from evo.packaging.runtime.loading import Cupy, Package, PackagedKernel, Torch
from fitness.cuda.running import launching
from fitness.cuda.running.arguments import program
from fitness.cuda.running.launching import Launches, ReadyLaunch
from operators.plan.reading import ResolvedPlan
from operators.plan.tensor_map import TENSOR_MAP_BYTES, ResolvedTensorMap

LIBRARIES: Mapping[str, Callable[[], Any]] = {"torch": Torch, "cupy": Cupy}
CHUNK_BYTES = 64 << 10
"""Memory for descriptors of tensor maps that is allocated at a time."""


def load(folder: str | Path | None = None) -> CudaKernel:
    """Return the kernel of this folder, or of another package's; nothing is compiled before the first call."""
    return CudaKernel(Package(Path(folder) if folder else Path(__file__).parent))


def build(folder: str | Path | None = None) -> None:
    """Compile the short way for torch's tensors, which takes g++ and half a minute once: programs use it that load the
    package from then on. It raises RuntimeError."""
    _driver()
    mapped = Path("/proc/self/maps").read_text(encoding="utf-8").split()
    library = next((word for word in mapped if Path(word).name.startswith("libcuda.so")), "-lcuda")
    package = Package(Path(folder) if folder else Path(__file__).parent)
    native.build(package.folder, include=include_folders(), link=["-ltorch_cuda", library])


class CudaKernel(PackagedKernel):
    """A kernel of a GPU: a call launches it into the current stream of the arrays' library."""

    def __init__(self, package: Package) -> None:
        super().__init__(package, LIBRARIES)
        self._loaded: dict[int, Loaded] = {}

    def _launcher(
        self, library: Any, device: int | str, dims: Mapping[str, int]
    ) -> tuple[ResolvedPlan, Callable[[Mapping[str, int]], object]]:
        if not isinstance(device, int):
            raise ValueError(f"the arrays lie on {device}; the kernel runs on a GPU")
        if device not in self._loaded:
            self._loaded[device] = Loaded(self.package, device)
        loaded, package = self._loaded[device], self.package
        with loaded.current():
            self.hand_over(library, device, [loaded.functions[name] for name in package.params])
            resolved = package.resolved(dims, loaded.facts, loaded.occupancy)
        wanted = program(resolved, package.params, package.operator)
        launches = Launches(loaded.cu, wanted, package.sizes(dims, resolved))
        return resolved, lambda addresses: loaded.enqueue(launches, addresses, library.stream(device))


class Loaded:
    """The kernel's code on one GPU, in its primary context, which torch and CuPy use too."""

    def __init__(self, package: Package, ordinal: int) -> None:
        """It compiles the code, or takes it from the cache. It raises RuntimeError."""
        self.cu = _driver()
        self._current, self._launch = self.cu.cuCtxGetCurrent, self.cu.cuLaunchKernelEx
        device = call("DeviceGet", ordinal)
        self._context = call("DevicePrimaryCtxRetain", device)

        def attribute(name: str) -> int:
            names = self.cu.CUdevice_attribute
            return int(call("DeviceGetAttribute", getattr(names, f"CU_DEVICE_ATTRIBUTE_{name}"), device))

        self.facts = {
            "sm_count": attribute("MULTIPROCESSOR_COUNT"),
            "warp_size": attribute("WARP_SIZE"),
            "max_shared_bytes": attribute("MAX_SHARED_MEMORY_PER_BLOCK_OPTIN"),
            "l2_bytes": attribute("L2_CACHE_SIZE"),
        }
        major, minor = attribute("COMPUTE_CAPABILITY_MAJOR"), attribute("COMPUTE_CAPABILITY_MINOR")
        cubin, symbols = compiled(package, f"sm_{major}{minor}{'a' if major >= 9 else ''}")
        with self.current():
            module = call("ModuleLoadData", cubin)
            self.functions = {n: call("ModuleGetFunction", module, s.encode()) for n, s in symbols.items()}
            for function in self.functions.values():
                launching.allow_shared(self.cu, call, function, self.facts["max_shared_bytes"])
        self.descriptors = Descriptors(self.cu)

    def current(self) -> _Current:
        """The GPU's context is the thread's own while this is entered."""
        return _Current(self._context)

    def occupancy(self, kernel: str, threads: int, shared_bytes: int) -> int:
        """The number of blocks of a kernel that a multiprocessor holds at a time."""
        function = self.functions[kernel]
        return int(call("OccupancyMaxActiveBlocksPerMultiprocessor", function, threads, shared_bytes))

    def enqueue(self, launches: Launches, addresses: Mapping[str, int], stream: int) -> None:
        """One call of the kernel into a stream."""
        result, current = self._current()
        if result or current != self._context:  # as in a thread that has not worked on this GPU yet
            with self.current():
                self._enqueue(launches, addresses, stream)
        else:
            self._enqueue(launches, addresses, stream)

    def _enqueue(self, launches: Launches, addresses: Mapping[str, int], stream: int) -> None:
        maps = {m.name: self._descriptor(m, addresses[m.tensor]) for m in launches.maps} if launches.maps else {}
        launches.enqueue(addresses, maps, stream, clear=_clear, start=self._start)

    def _descriptor(self, declared: ResolvedTensorMap, address: int) -> int:
        return self.descriptors.address(launching.tensor_map(self.cu, call, declared, address))

    def _start(self, number: int, launch: ReadyLaunch) -> None:
        (result,) = self._launch(launch.config, self.functions[launch.of.kernel], launch.arguments.address, 0)
        if result:
            raise RuntimeError(f"cuLaunchKernelEx: {result.name}")


class Descriptors:
    """Descriptors of tensor maps in a GPU's memory, where kernels find them.

    None is ever overwritten or freed, as launches that wait and CUDA graphs go on using them: each distinct one takes
    128 bytes for good.
    """

    def __init__(self, cu: Any) -> None:
        self._cu = cu
        self._lock = Lock()
        self._addresses: dict[bytes, int] = {}
        self._chunk = 0
        self._stream: Any = None

    def address(self, descriptor: bytes) -> int:
        """Where the descriptor lies, to which it is copied first if it is new."""
        with self._lock:
            if descriptor not in self._addresses:
                with self._beside_captures():
                    self._addresses[descriptor] = self._copied(descriptor)
            return self._addresses[descriptor]

    def _copied(self, descriptor: bytes) -> int:
        if self._stream is None:
            self._stream = call("StreamCreate", self._cu.CUstream_flags.CU_STREAM_NON_BLOCKING)
        offset = len(self._addresses) * TENSOR_MAP_BYTES % CHUNK_BYTES
        if offset == 0:
            self._chunk = int(call("MemAlloc", CHUNK_BYTES))
        call("MemcpyHtoDAsync", self._chunk + offset, descriptor, TENSOR_MAP_BYTES, self._stream)
        call("StreamSynchronize", self._stream)
        return self._chunk + offset

    @contextmanager
    def _beside_captures(self) -> Iterator[None]:
        """The thread may allocate and wait, though a stream is being captured; nothing of that becomes part of it."""
        relaxed = self._cu.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
        before = call("ThreadExchangeStreamCaptureMode", relaxed)
        try:
            yield
        finally:
            call("ThreadExchangeStreamCaptureMode", before)


class _Current:
    """A context that is the thread's own for a while."""

    def __init__(self, context: Any) -> None:
        self._context = context

    def __enter__(self) -> None:
        self._is_other = call("CtxGetCurrent") != self._context
        if self._is_other:
            call("CtxPushCurrent", self._context)

    def __exit__(self, *_: object) -> None:
        if self._is_other:
            call("CtxPopCurrent")


def _clear(address: int, size: int, stream: int) -> None:
    call("MemsetD8Async", address, 0, size, stream)


@lru_cache
def _driver() -> Any:
    from cuda.bindings import driver

    (result,) = driver.cuInit(0)
    if result != driver.CUresult.CUDA_SUCCESS:
        raise RuntimeError(f"cuInit: {result.name}")
    return driver


@lru_cache
def _function(name: str) -> Any:
    return getattr(_driver(), f"cu{name}")


def call(function: str, *arguments: Any) -> Any:
    """`cu<function>`; what it returns besides the result. It raises RuntimeError."""
    result, *values = _function(function)(*arguments)
    if result:  # CUDA_SUCCESS is 0
        raise RuntimeError(f"cu{function}: {result.name}")
    return values[0] if len(values) == 1 else values


# --- compiling ------------------------------------------------------------------------------------------------------


def compiled(package: Package, arch: str) -> tuple[bytes, dict[str, str]]:
    """The code for an architecture, and the kernels' symbols by name, from the package's folder `cache` if they are
    there. It raises RuntimeError with the compiler's words."""
    from cuda.bindings import nvrtc

    source = (package.folder / "kernel.cu").read_bytes()
    _, *version = nvrtc.nvrtcVersion()
    said = json.dumps([arch, version, dict(package.data["nvrtc"])], sort_keys=True).encode()
    stem = package.folder / "cache" / f"{arch}-{hashlib.sha256(source + said).hexdigest()[:24]}"
    with suppress(OSError, ValueError):
        names: dict[str, str] = json.loads(stem.with_suffix(".json").read_text(encoding="utf-8"))
        return stem.with_suffix(".cubin").read_bytes(), names
    cubin, names = compile_source(package, source, arch)
    with suppress(OSError):  # a folder that cannot be written to costs a second at every start
        stem.parent.mkdir(exist_ok=True)
        _write(stem.with_suffix(".cubin"), cubin)
        _write(stem.with_suffix(".json"), json.dumps(names).encode())
    return cubin, names


def compile_source(package: Package, source: bytes, arch: str) -> tuple[bytes, dict[str, str]]:
    """The code that NVRTC makes, which needs no GPU, and symbols by name. It raises RuntimeError."""
    from cuda.bindings import nvrtc

    def do(function: str, *arguments: Any) -> Any:
        result, *values = getattr(nvrtc, f"nvrtc{function}")(*arguments)
        if result != nvrtc.nvrtcResult.NVRTC_SUCCESS:
            raise RuntimeError(f"nvrtc{function}: {result.name}")
        return values[0] if values else None

    def text(what: str) -> bytes:
        buffer = bytearray(int(do(f"Get{what}Size", handle)))
        do(f"Get{what}", handle, buffer)
        return bytes(buffer)

    settings, names = package.data["nvrtc"], [name.encode() for name in package.params]
    headers = {name.encode(): body.encode() for name, body in settings["headers"].items()}
    folders = [f"--include-path={folder}" for folder in include_folders()]
    options = [o.encode() for o in (f"--gpu-architecture={arch}", *settings["options"], *folders)]
    handle = do("CreateProgram", source, b"kernel.cu", len(headers), list(headers.values()), list(headers))
    try:
        for name in names:
            do("AddNameExpression", handle, name)
        (result,) = nvrtc.nvrtcCompileProgram(handle, len(options), options)
        if result != nvrtc.nvrtcResult.NVRTC_SUCCESS:
            log = text("ProgramLog").replace(b"\0", b"").decode(errors="replace")
            raise RuntimeError(f"kernel.cu does not compile for {arch} ({result.name}):\n{log}")
        return text("CUBIN"), {name.decode(): do("GetLoweredName", handle, name).decode() for name in names}
    finally:
        nvrtc.nvrtcDestroyProgram(handle)


def include_folders() -> list[str]:
    """The folders of CUDA's headers: those of the pip packages, else of the toolkit at CUDA_HOME, or /usr/local/cuda;
    CUTLASS's besides where CUTLASS_HOME names it."""
    found: list[str] = []
    with suppress(ImportError):
        from cuda.pathfinder import find_nvidia_header_directory

        found = [folder for name in ("cudart", "cccl") if (folder := find_nvidia_header_directory(name))]
    if not found:
        found = [str(Path(os.environ.get("CUDA_HOME", "/usr/local/cuda"), "include"))]
    found += [str(Path(each).parent) for each in found if Path(each).name == "cccl"]
    if root := os.environ.get("CUTLASS_HOME"):
        found.append(str(Path(root, "include")))
    return [*dict.fromkeys([*found, *(str(Path(each, "cccl")) for each in found)])]


def _write(path: Path, data: bytes) -> None:
    """Write a file as a whole or not at all: other processes may do the same."""
    with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
        file.write(data)
    Path(file.name).replace(path)
