// What a binding to torch asks of a processor.
// Apache-2.0, see LICENSE.
#pragma once
#include <array>
#include <atomic>
#include <cstdint>
#include <vector>

#include "torch.hpp"

namespace {
namespace evo_torch {

constexpr c10::DispatchKeySet PLAIN({c10::DispatchKey::CPU, c10::DispatchKey::AutogradCPU, c10::DispatchKey::AutocastCPU,
                                     c10::DispatchKey::ADInplaceOrView});

// The kernel's functions, which Python has compiled and loaded.
template <std::size_t COUNT>
class Functions {
public:
    void add(int, const std::vector<std::uintptr_t>& addresses) {
        for (std::size_t i = 0; i < COUNT; ++i) functions_[i] = reinterpret_cast<Function>(addresses.at(i));
    }
    bool on(int) const { return functions_[COUNT - 1] != nullptr; }
    void call(std::size_t number, void* const* arguments) const { functions_[number].load()(arguments); }

private:
    using Function = void (*)(void* const*);
    std::array<std::atomic<Function>, COUNT> functions_ = {};
};

}  // namespace evo_torch
}  // namespace
