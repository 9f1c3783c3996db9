// Runs a kernel's plan once, for a simulator to watch. Buffers come from malloc and are filled by system calls alone,
// so that no simulated cache holds any of their lines when the kernel starts. One thread, whatever the kernel asks for.
//
//   profile_driver LIBRARY TASK
//
// TASK is a file of 64-bit words, then bytes:
//   words, orders of fitness/cpu/image.py * words, buffers, (bytes, how many of them follow the words) * buffers,
//   zeros, (buffer, bytes) * zeros, steps, (launch, args, (is buffer, value) * args) * steps
//
// Before the kernel's code is called, this process and the simulator in it give up all system calls but a few.
#include "../native/confine.hpp"
#include "../native/image.hpp"
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sys/prctl.h>

namespace {

using image::Launch;
using image::Word;

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

// What the simulator does while a kernel runs and when it has ended: memory, signals to itself, and files that are
// there already, of those that the jail leaves in reach. A kernel shares its memory, so what it may do, a kernel may.
void confine_simulated() {
    confine::Filter filter;
    constexpr unsigned ALLOW = SECCOMP_RET_ALLOW, REFUSE = SECCOMP_RET_ERRNO | EPERM;
    filter.rule(ALLOW, {SYS_read, SYS_write, SYS_close, SYS_fstat, SYS_newfstatat, SYS_statx, SYS_lseek, SYS_pread64,
                        SYS_readlinkat, SYS_getcwd, SYS_mmap, SYS_munmap, SYS_mprotect, SYS_mremap, SYS_madvise, SYS_brk,
                        SYS_futex, SYS_set_robust_list, SYS_rseq, SYS_sched_yield, SYS_sched_getaffinity, SYS_getcpu,
                        SYS_rt_sigaction, SYS_rt_sigprocmask, SYS_rt_sigreturn, SYS_rt_sigtimedwait, SYS_rt_sigpending,
                        SYS_sigaltstack, SYS_restart_syscall, SYS_gettid, SYS_getpid, SYS_clock_gettime, SYS_getrandom,
                        SYS_exit, SYS_exit_group});
    filter.rule_if_bits(SYS_openat, {{2, O_CREAT}}, REFUSE, ALLOW);
#ifdef SYS_open
    filter.rule_if_bits(SYS_open, {{1, O_CREAT}}, REFUSE, ALLOW);
    filter.rule(ALLOW, {SYS_stat, SYS_readlink, SYS_getrlimit});
#endif
    const auto self = static_cast<unsigned>(getpid());
    for (const unsigned signal : {SYS_kill, SYS_tkill, SYS_tgkill}) filter.rule_if_equal(signal, {{0, self}}, ALLOW, REFUSE);
    filter.install_simulated(REFUSE);
}

}  // namespace

int main(int argc, char** argv) {
    if (argc != 3) fail("usage: profile_driver LIBRARY TASK");
    const int library = open(argv[1], O_RDONLY | O_CLOEXEC), task = open(argv[2], O_RDONLY | O_CLOEXEC);
    if (library < 0) fail("cannot open the library");
    if (task < 0) fail("cannot open the task");
    std::vector<Word> orders(static_cast<std::size_t>(read_word(task)));
    read_exactly(task, orders.data(), orders.size() * sizeof(Word));
    const image::Mapped mapped = image::map(orders.data(), library);
    if (!mapped.problem.empty()) fail(mapped.problem.c_str());
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
        step.launch = mapped.launches.at(static_cast<std::size_t>(read_word(task)));
        step.values.resize(static_cast<std::size_t>(read_word(task)));
        for (Word& value : step.values) {
            const bool is_buffer = read_word(task) != 0;
            value = read_word(task);
            if (is_buffer) value = reinterpret_cast<Word>(buffers.at(static_cast<std::size_t>(value)));
        }
        for (Word& value : step.values) step.pointers.push_back(&value);
    }
    for (std::size_t i = 0; i < buffers.size(); ++i) read_exactly(task, buffers[i], given[i]);
    confine_simulated();
    for (const auto& [buffer, bytes] : zeros) std::memset(buffers.at(buffer), 0, bytes);
    for (const Step& step : steps) step.launch(step.pointers.data());
    std::fflush(nullptr);
    _exit(0);
}
