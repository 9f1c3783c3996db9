// Runs a kernel's plan once, for a simulator to watch. Buffers come from malloc and are filled by system calls alone,
// so that no simulated cache holds any of their lines when the kernel starts. One thread, whatever the kernel asks for.
//
//   profile_driver LIBRARY TASK
//
// TASK is a file of 64-bit words, then bytes:
//   buffers, (bytes, how many of them follow the words) * buffers,
//   zeros, (buffer, bytes) * zeros, steps, (launch, args, (is buffer, value) * args) * steps
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <fcntl.h>
#include <string>
#include <unistd.h>
#include <vector>

namespace {

using Word = std::int64_t;
using Launch = void (*)(void* const*);

[[noreturn]] void fail(const char* what) {
    std::fprintf(stderr, "profile_driver: %s\n", what);
    _exit(2);
}

void read_exactly(int fd, void* to, std::size_t bytes) {
    for (char* p = static_cast<char*>(to); bytes > 0;) {
        const ssize_t got = read(fd, p, bytes);
        if (got <= 0) fail("the task is too short");
        p += got;
        bytes -= static_cast<std::size_t>(got);
    }
}

Word read_word(int fd) {
    Word word;
    read_exactly(fd, &word, sizeof word);
    return word;
}

struct Step {
    Launch launch;
    std::vector<Word> values;
    std::vector<void*> pointers;
};

}  // namespace

int main(int argc, char** argv) {
    if (argc != 3) fail("usage: profile_driver LIBRARY TASK");
    // libgomp reads them when it is loaded, with the kernel.
    for (const char* name : {"OMP_NUM_THREADS", "OMP_THREAD_LIMIT"}) setenv(name, "1", 1);
    void* library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
    if (!library) fail(dlerror());
    const int task = open(argv[2], O_RDONLY | O_CLOEXEC);
    if (task < 0) fail("cannot open the task");
    std::vector<char*> buffers;
    std::vector<std::size_t> given;
    for (Word count = read_word(task); count > 0; --count) {
        const auto bytes = static_cast<std::size_t>(read_word(task));
        buffers.push_back(static_cast<char*>(std::aligned_alloc(64, (bytes + 64) / 64 * 64)));
        if (!buffers.back()) fail("no memory");
        given.push_back(static_cast<std::size_t>(read_word(task)));
    }
    std::vector<std::pair<std::size_t, std::size_t>> zeros(static_cast<std::size_t>(read_word(task)));
    for (auto& [buffer, bytes] : zeros) {
        buffer = static_cast<std::size_t>(read_word(task));
        bytes = static_cast<std::size_t>(read_word(task));
    }
    std::vector<Step> steps(static_cast<std::size_t>(read_word(task)));
    for (Step& step : steps) {
        const std::string name = "evo_launch_" + std::to_string(read_word(task));
        step.launch = reinterpret_cast<Launch>(dlsym(library, name.c_str()));
        if (!step.launch) fail("the library lacks a launch");
        step.values.resize(static_cast<std::size_t>(read_word(task)));
        for (Word& value : step.values) {
            const bool is_buffer = read_word(task) != 0;
            value = read_word(task);
            if (is_buffer) value = reinterpret_cast<Word>(buffers.at(static_cast<std::size_t>(value)));
        }
        for (Word& value : step.values) step.pointers.push_back(&value);
    }
    for (std::size_t i = 0; i < buffers.size(); ++i) read_exactly(task, buffers[i], given[i]);
    for (const auto& [buffer, bytes] : zeros) std::memset(buffers.at(buffer), 0, bytes);
    for (const Step& step : steps) step.launch(step.pointers.data());
    std::fflush(nullptr);
    _exit(0);
}
