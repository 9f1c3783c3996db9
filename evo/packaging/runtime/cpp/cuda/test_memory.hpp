// Memory and calls of test_kernel.cpp, on the first GPU.
#pragma once
#include <cuda.h>

#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "cases.hpp"

inline void succeed(CUresult result, const char* call) {
    const char* name = nullptr;
    if (result == CUDA_SUCCESS) return;
    cuGetErrorName(result, &name);
    throw std::runtime_error(std::string(call) + ": " + (name ? name : "unknown error"));
}

class TestMemory {
public:
    explicit TestMemory(std::size_t bytes) : bytes_(bytes) {
        CUdeviceptr made = 0;
        succeed(cuMemAlloc(&made, bytes + 1), "cuMemAlloc");
        data_ = std::shared_ptr<void>(reinterpret_cast<void*>(made), [made](void*) { cuMemFree(made); });
        succeed(cuMemsetD8(made, 0x7b, bytes + 1), "cuMemsetD8");
    }
    void write(const char* from) { succeed(cuMemcpyHtoD(place(), from, bytes_), "cuMemcpyHtoD"); }
    std::vector<char> read() const {
        std::vector<char> made(bytes_);
        succeed(cuMemcpyDtoH(made.data(), place(), bytes_), "cuMemcpyDtoH");
        return made;
    }
    void* address() const { return data_.get(); }

private:
    CUdeviceptr place() const { return reinterpret_cast<CUdeviceptr>(data_.get()); }
    std::size_t bytes_;
    std::shared_ptr<void> data_;
};

class TestKernel {
public:
    static constexpr std::size_t ARGUMENTS = 2;
    static constexpr const char* USAGE = "kernel.cubin cases.bin";
    explicit TestKernel(const std::vector<std::string>& arguments) : kernel_(load(arguments.front())) {}
    void operator()(const cases::kernel::Dims& dims, const cases::kernel::Tensors& tensors) {
        succeed(cuCtxSynchronize(), "cuCtxSynchronize");  // memory is filled in a stream that ours does not wait for
        kernel_.launch(dims, tensors, stream_);
        succeed(cuStreamSynchronize(stream_), "cuStreamSynchronize");
    }

private:
    cases::kernel::Kernel load(const std::string& file) {
        CUdevice device = 0;
        CUcontext context = nullptr;
        succeed(cuInit(0), "cuInit");
        succeed(cuDeviceGet(&device, 0), "cuDeviceGet");
        succeed(cuDevicePrimaryCtxRetain(&context, device), "cuDevicePrimaryCtxRetain");
        succeed(cuCtxSetCurrent(context), "cuCtxSetCurrent");
        succeed(cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
        return cases::kernel::Kernel(file);
    }
    CUstream stream_ = nullptr;
    cases::kernel::Kernel kernel_;
};
