// What the launcher of a kernel asks of the machine it runs on.
// Apache-2.0, see LICENSE. Everything is local to the file that includes it, so that several kernels fit in a program.
#pragma once
#include <cstdlib>
#include <memory>

#include <sched.h>
#include <unistd.h>

#include "plan.hpp"

namespace {
namespace evo_plan {

// What formulas may know of a machine.
struct Facts {
    long long cpu_count = 1, l2_bytes = 1 << 20;
};

inline Facts machine() {
    Facts found;
    const char* said = std::getenv("OMP_NUM_THREADS");
    found.cpu_count = said ? std::strtoll(said, nullptr, 10) : 0;
    if (found.cpu_count <= 0) {
        cpu_set_t cores;
        found.cpu_count = sched_getaffinity(0, sizeof cores, &cores) == 0 ? CPU_COUNT(&cores) : 1;
    }
    const long l2_bytes = sysconf(_SC_LEVEL2_CACHE_SIZE);
    if (l2_bytes > 0) found.l2_bytes = l2_bytes;
    return found;
}

struct Call {
    std::size_t kernel = 0;
    Arguments arguments;
};

inline void clear(const Extent& extent) {
    std::memset(reinterpret_cast<void*>(extent.address), 0, static_cast<std::size_t>(extent.bytes));
}

// Memory that begins on a page, given back by itself.
struct Freed {
    void operator()(void* memory) const { std::free(memory); }
};
inline std::unique_ptr<void, Freed> allocated(std::size_t bytes) {
    constexpr std::size_t PAGE = 4096;
    std::unique_ptr<void, Freed> made(std::aligned_alloc(PAGE, (bytes + PAGE - 1) / PAGE * PAGE + PAGE));
    if (!made) throw std::bad_alloc();
    return made;
}

}  // namespace evo_plan
}  // namespace
