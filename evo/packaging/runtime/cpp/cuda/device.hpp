// What a binding to torch asks of GPUs.
// Apache-2.0, see LICENSE.
#pragma once
#include <array>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <vector>

#include "driver.hpp"
#include "torch.hpp"

// A part of libtorch_cuda that stays as it is for code compiled elsewhere; CUDA's runtime is not needed for it.
extern "C" int32_t aoti_torch_get_current_cuda_stream(int32_t device, void** stream);

namespace {
namespace evo_torch {

using evo_plan::driver;

constexpr c10::DispatchKeySet PLAIN({c10::DispatchKey::CUDA, c10::DispatchKey::AutogradCUDA,
                                     c10::DispatchKey::AutocastCUDA, c10::DispatchKey::ADInplaceOrView});

inline CUstream current_stream(int device) {
    void* stream = nullptr;
    if (aoti_torch_get_current_cuda_stream(device, &stream) != 0) throw std::runtime_error("torch tells no current stream");
    return static_cast<CUstream>(stream);
}

// While one lives, the context is the thread's own.
class Current {
public:
    explicit Current(CUcontext context) {
        CUcontext before = nullptr;
        driver(cuCtxGetCurrent(&before), "cuCtxGetCurrent");
        if (before == context) return;
        driver(cuCtxPushCurrent(context), "cuCtxPushCurrent");
        is_pushed_ = true;
    }
    ~Current() {
        CUcontext context = nullptr;
        if (is_pushed_) cuCtxPopCurrent(&context);
    }
    Current(const Current&) = delete;
    Current& operator=(const Current&) = delete;

private:
    bool is_pushed_ = false;
};

// The kernel on the GPUs that Python has loaded its code on, which stays there.
template <class Kernel>
class Kernels {
public:
    struct Loaded {
        Kernel kernel;
        CUcontext context;
    };
    // The GPU's context is current.
    void add(int device, const std::vector<std::uintptr_t>& addresses) {
        const std::lock_guard<std::mutex> alone(mutex_);
        if (loaded_.at(static_cast<std::size_t>(device))) return;
        std::vector<CUfunction> functions;
        for (const std::uintptr_t address : addresses) functions.push_back(reinterpret_cast<CUfunction>(address));
        CUcontext context = nullptr;
        driver(cuCtxGetCurrent(&context), "cuCtxGetCurrent");
        loaded_[static_cast<std::size_t>(device)] = new Loaded{Kernel::of_functions(functions), context};
    }
    const Loaded* on(int device) const {
        return device >= 0 && device < MOST ? loaded_[static_cast<std::size_t>(device)].load() : nullptr;
    }

private:
    static constexpr int MOST = 64;
    std::mutex mutex_;
    std::array<std::atomic<const Loaded*>, MOST> loaded_ = {};
};

}  // namespace evo_torch
}  // namespace
