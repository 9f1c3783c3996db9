// A CUDA driver that launches nothing and prints what it is told, arguments in hexadecimal digits. The environment says
// how many bytes each has: FAKE_PARAMETERS holds a line "symbol size size ..." for every kernel. An argument that points
// to what was copied to the device is printed as that; nothing may be copied over something else, or while a thread heeds
// captures, and launches wait for copies.
#include <cuda.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

struct CUfunc_st {
    std::string symbol;
    std::vector<int> sizes;
};

namespace {
std::map<std::string, CUfunc_st> kernels;
std::map<CUdeviceptr, std::string> copied;
CUdeviceptr allocated = CUdeviceptr{1} << 60, end = allocated;
CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
bool copies_wait = false;

void print_bytes(const void* from, int count) {
    for (int i = 0; i < count; ++i) std::printf("%02x", static_cast<const unsigned char*>(from)[i]);
}
}  // namespace

extern "C" {
CUresult cuGetErrorName(CUresult, const char** name) { return *name = "fake", CUDA_SUCCESS; }
CUresult cuGetErrorString(CUresult, const char** text) { return *text = "fake", CUDA_SUCCESS; }
CUresult cuCtxGetCurrent(CUcontext* context) { return *context = nullptr, CUDA_SUCCESS; }
CUresult cuCtxPushCurrent(CUcontext) { return CUDA_ERROR_INVALID_CONTEXT; }
CUresult cuCtxPopCurrent(CUcontext*) { return CUDA_ERROR_INVALID_CONTEXT; }
int aoti_torch_get_current_cuda_stream(int, void** stream) { return *stream = reinterpret_cast<void*>(77), 0; }  // torch's
CUresult cuCtxGetDevice(CUdevice* device) { return *device = 0, CUDA_SUCCESS; }
CUresult cuDeviceGetAttribute(int* number, CUdevice_attribute which, CUdevice) {
    *number = which == CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT               ? 132
              : which == CU_DEVICE_ATTRIBUTE_WARP_SIZE                        ? 32
              : which == CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN ? 232448
                                                                              : 50 << 20;
    return CUDA_SUCCESS;
}
CUresult cuModuleLoadData(CUmodule* module, const void*) {
    std::istringstream text(std::getenv("FAKE_PARAMETERS"));
    for (std::string line; std::getline(text, line);) {
        std::istringstream words(line);
        CUfunc_st kernel;
        words >> kernel.symbol;
        for (int size; words >> size;) kernel.sizes.push_back(size);
        kernels[kernel.symbol] = kernel;
    }
    return *module = nullptr, CUDA_SUCCESS;
}
CUresult cuModuleUnload(CUmodule) { return CUDA_SUCCESS; }
CUresult cuModuleGetFunction(CUfunction* function, CUmodule, const char* name) {
    return *function = &kernels.at(name), CUDA_SUCCESS;
}
CUresult cuFuncGetAttribute(int* number, CUfunction_attribute, CUfunction) { return *number = 1024, CUDA_SUCCESS; }
CUresult cuFuncSetAttribute(CUfunction, CUfunction_attribute, int most_bytes) {
    return most_bytes == 232448 - 1024 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, CUfunction, int threads, size_t) {
    return *blocks = 1 + threads % 3, CUDA_SUCCESS;
}
CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode* other) { return std::swap(*other, mode), CUDA_SUCCESS; }
CUresult cuStreamCreate(CUstream* stream, unsigned flags) {
    *stream = reinterpret_cast<CUstream>(78);
    return flags == CU_STREAM_NON_BLOCKING ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
CUresult cuStreamDestroy(CUstream) { return CUDA_SUCCESS; }
CUresult cuStreamSynchronize(CUstream stream) {
    if (reinterpret_cast<size_t>(stream) == 78) copies_wait = false;
    return CUDA_SUCCESS;
}
CUresult cuMemAlloc(CUdeviceptr* made, size_t bytes) {
    if (mode != CU_STREAM_CAPTURE_MODE_RELAXED) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    *made = end;
    end += bytes;
    return CUDA_SUCCESS;
}
CUresult cuMemFree(CUdeviceptr) { return CUDA_SUCCESS; }
CUresult cuMemcpyHtoDAsync(CUdeviceptr to, const void* from, size_t bytes, CUstream stream) {
    if (mode != CU_STREAM_CAPTURE_MODE_RELAXED) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    if (reinterpret_cast<size_t>(stream) != 78 || to % 64 || to < allocated || to + bytes > end) return CUDA_ERROR_INVALID_VALUE;
    copies_wait = true;
    return copied.emplace(to, std::string(static_cast<const char*>(from), bytes)).second ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
CUresult cuMemAllocAsync(CUdeviceptr* made, size_t, CUstream) { return *made = CUdeviceptr{1} << 50, CUDA_SUCCESS; }
CUresult cuMemFreeAsync(CUdeviceptr, CUstream) { return CUDA_SUCCESS; }
CUresult cuMemsetD8Async(CUdeviceptr address, unsigned char byte, size_t bytes, CUstream stream) {
    return std::printf("memset %llu %d %zu %zu\n", address, byte, bytes, reinterpret_cast<size_t>(stream)), CUDA_SUCCESS;
}
CUresult cuTensorMapEncodeTiled(CUtensorMap* map, CUtensorMapDataType type, cuuint32_t rank, void* address,
                                const cuuint64_t* shape, const cuuint64_t* strides, const cuuint32_t* box,
                                const cuuint32_t* steps, CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
                                CUtensorMapL2promotion promotion, CUtensorMapFloatOOBfill fill) {
    std::ostringstream said;
    said << type << ' ' << rank << ' ' << reinterpret_cast<unsigned long long>(address);
    for (cuuint32_t i = 0; i < rank; ++i) said << ' ' << shape[i] << ' ' << box[i] << ' ' << steps[i];
    for (cuuint32_t i = 0; i + 1 < rank; ++i) said << ' ' << strides[i];
    said << ' ' << interleave << ' ' << swizzle << ' ' << promotion << ' ' << fill;
    std::printf("map %s\n", said.str().c_str());
    std::memset(map, 0, sizeof *map);
    std::memcpy(map, said.str().c_str(), said.str().size() < sizeof *map ? said.str().size() : sizeof *map);
    return CUDA_SUCCESS;
}
CUresult cuLaunchKernelEx(const CUlaunchConfig* config, CUfunction function, void** arguments, void**) {
    if (copies_wait || mode != CU_STREAM_CAPTURE_MODE_GLOBAL) return CUDA_ERROR_INVALID_VALUE;
    std::printf("launch %s %u %u %u %u %u %u %u %zu", function->symbol.c_str(), config->gridDimX, config->gridDimY,
                config->gridDimZ, config->blockDimX, config->blockDimY, config->blockDimZ, config->sharedMemBytes,
                reinterpret_cast<size_t>(config->hStream));
    for (unsigned i = 0; i < config->numAttrs; ++i) {
        const CUlaunchAttribute& attribute = config->attrs[i];
        const auto& dim = attribute.value.clusterDim;
        if (attribute.id == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION) std::printf(" cluster %u %u %u", dim.x, dim.y, dim.z);
        if (attribute.id == CU_LAUNCH_ATTRIBUTE_COOPERATIVE) std::printf(" cooperative %d", attribute.value.cooperative);
        if (attribute.id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION) {
            std::printf(" serialization %d", attribute.value.programmaticStreamSerializationAllowed);
        }
    }
    for (std::size_t i = 0; i < function->sizes.size(); ++i) {
        std::printf(" ");
        CUdeviceptr pointer = 0;
        if (function->sizes[i] == sizeof pointer) std::memcpy(&pointer, arguments[i], sizeof pointer);
        const auto at = copied.find(pointer);
        if (at == copied.end()) {
            print_bytes(arguments[i], function->sizes[i]);
        } else {
            print_bytes(at->second.data(), static_cast<int>(at->second.size()));
        }
    }
    return std::printf("\n"), CUDA_SUCCESS;
}
}
