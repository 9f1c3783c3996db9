// Runs candidate kernels in a process of their own: maps the buffers it is handed, calls the launches it is told to,
// reads the clock. It holds no expected value and gives no verdict.
//
//   runner SOCKET_FD
//
// Messages both ways are 64-bit words: [what, count, word...]. Requests:
//   LOAD  [bytes of path, path padded to words]             -> [OK, 1, launches found]
//   BIND  [slot, buffers, (which fd, file offset, map bytes, data offset) * buffers] with two fds (inputs, work)
//                                                           -> [OK, buffers, address...]
//   PLAN  [id, zeros, (buffer, bytes) * zeros, steps, (launch, args, (is buffer, value) * args) * steps] -> [OK, 0]
//   RUN   [plan, slot]                                      -> [OK, 1, nanoseconds]
// Replies that are not OK: [ERROR, bytes, text padded], [SIGNAL, 2, number, address].
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <dlfcn.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <map>
#include <sched.h>
#include <string>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <vector>

namespace {

using Word = std::int64_t;
using Launch = void (*)(void* const*);
enum Request : Word { LOAD = 1, BIND = 2, PLAN = 3, RUN = 4 };
enum Reply : Word { OK = 0, ERROR = 1, SIGNAL = 2 };
constexpr std::size_t GUARD_BYTES = 4 << 20;

struct Mapping {
    char* reserved;
    std::size_t bytes;
    char* data;
};
struct Step {
    Launch launch;
    std::vector<std::pair<bool, Word>> args;
};
struct Plan {
    std::vector<std::pair<Word, Word>> zeros;
    std::vector<Step> steps;
};

int channel = -1;
std::vector<Launch> launches;
std::map<Word, std::vector<Mapping>> slots;
std::map<Word, Plan> plans;

void send_words(const Word* words, std::size_t count) {
    const char* p = reinterpret_cast<const char*>(words);
    for (std::size_t left = count * sizeof(Word); left > 0;) {
        const ssize_t sent = ::send(channel, p, left, MSG_NOSIGNAL);
        if (sent <= 0) _exit(1);
        p += sent;
        left -= static_cast<std::size_t>(sent);
    }
}

void reply(Word what, const std::vector<Word>& words) {
    std::vector<Word> message{what, static_cast<Word>(words.size())};
    message.insert(message.end(), words.begin(), words.end());
    send_words(message.data(), message.size());
}

void reply_error(const std::string& text) {
    std::vector<Word> words(1 + (text.size() + 7) / 8);
    words[0] = static_cast<Word>(text.size());
    std::memcpy(words.data() + 1, text.data(), text.size());
    reply(ERROR, words);
}

void on_fault(int number, siginfo_t* info, void*) {
    const Word message[] = {SIGNAL, 2, number, reinterpret_cast<Word>(info->si_addr)};
    send_words(message, 4);
    _exit(1);
}

// Receives exactly `count` words; file descriptors that come along are appended to `fds`.
void receive(Word* words, std::size_t count, std::vector<int>& fds) {
    char* p = reinterpret_cast<char*>(words);
    for (std::size_t left = count * sizeof(Word); left > 0;) {
        iovec io{p, left};
        alignas(cmsghdr) char control[CMSG_SPACE(4 * sizeof(int))];
        msghdr message{};
        message.msg_iov = &io;
        message.msg_iovlen = 1;
        message.msg_control = control;
        message.msg_controllen = sizeof control;
        const ssize_t got = ::recvmsg(channel, &message, MSG_CMSG_CLOEXEC);
        if (got <= 0) _exit(0);  // the verifier is gone or done
        for (cmsghdr* c = CMSG_FIRSTHDR(&message); c; c = CMSG_NXTHDR(&message, c)) {
            if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
            const std::size_t n = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
            for (std::size_t i = 0; i < n; ++i) {
                int fd;
                std::memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof fd);
                fds.push_back(fd);
            }
        }
        p += got;
        left -= static_cast<std::size_t>(got);
    }
}

void load(const std::vector<Word>& words) {
    const std::string path(reinterpret_cast<const char*>(words.data() + 1), static_cast<std::size_t>(words[0]));
    void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!library) return reply_error(dlerror());
    launches.clear();
    for (int i = 0;; ++i) {
        const auto launch = reinterpret_cast<Launch>(dlsym(library, ("evo_launch_" + std::to_string(i)).c_str()));
        if (!launch) break;
        launches.push_back(launch);
    }
    reply(OK, {static_cast<Word>(launches.size())});
}

void bind(const std::vector<Word>& words, const std::vector<int>& fds) {
    auto& slot = slots[words[0]];
    for (const auto& old : slot) munmap(old.reserved, old.bytes);
    slot.clear();
    std::vector<Word> addresses;
    for (Word i = 0; i < words[1]; ++i) {
        const Word* entry = words.data() + 2 + 4 * i;
        const bool writable = entry[0] == 1;
        const auto bytes = static_cast<std::size_t>(entry[2]);
        const std::size_t reserved_bytes = bytes + 2 * GUARD_BYTES;
        void* reserved = mmap(nullptr, reserved_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (reserved == MAP_FAILED) return reply_error("cannot reserve address space for a buffer");
        char* start = static_cast<char*>(reserved) + GUARD_BYTES;
        const int protection = writable ? PROT_READ | PROT_WRITE : PROT_READ;
        void* mapped = mmap(start, bytes, protection, MAP_SHARED | MAP_FIXED | MAP_POPULATE, fds.at(writable), entry[1]);
        if (mapped == MAP_FAILED) return reply_error("cannot map a buffer");
#ifdef MADV_POPULATE_WRITE
        if (writable) madvise(start, bytes, MADV_POPULATE_WRITE);
#endif
        slot.push_back({static_cast<char*>(reserved), reserved_bytes, start + entry[3]});
        addresses.push_back(reinterpret_cast<Word>(slot.back().data));
    }
    reply(OK, addresses);
}

void define(const std::vector<Word>& words) {
    Plan plan;
    const Word* p = words.data() + 1;
    for (Word zeros = *p++; zeros > 0; --zeros, p += 2) plan.zeros.emplace_back(p[0], p[1]);
    for (Word steps = *p++; steps > 0; --steps) {
        Step step{launches.at(static_cast<std::size_t>(*p++)), {}};
        for (Word args = *p++; args > 0; --args, p += 2) step.args.emplace_back(p[0] != 0, p[1]);
        plan.steps.push_back(std::move(step));
    }
    plans[words[0]] = std::move(plan);
    reply(OK, {});
}

Word nanoseconds() {
    timespec now;
    clock_gettime(CLOCK_MONOTONIC_RAW, &now);
    return Word{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

void run(const std::vector<Word>& words) {
    const Plan& plan = plans.at(words[0]);
    const auto& buffers = slots.at(words[1]);
    std::vector<std::vector<Word>> values;
    std::vector<std::vector<void*>> pointers;
    for (const Step& step : plan.steps) {
        values.emplace_back();
        for (const auto& [is_buffer, value] : step.args)
            values.back().push_back(is_buffer ? reinterpret_cast<Word>(buffers.at(static_cast<std::size_t>(value)).data) : value);
        pointers.emplace_back();
        for (Word& value : values.back()) pointers.back().push_back(&value);
    }
    const Word begin = nanoseconds();
    for (const auto& [buffer, bytes] : plan.zeros)
        std::memset(buffers[static_cast<std::size_t>(buffer)].data, 0, static_cast<std::size_t>(bytes));
    for (std::size_t i = 0; i < plan.steps.size(); ++i) plan.steps[i].launch(pointers[i].data());
    reply(OK, {nanoseconds() - begin});
}

// A kernel computes and starts threads. Children would outlive the session that we kill, and signals or another
// process's memory would reach the verifier: such calls end in SIGSYS. Without seccomp there is only the session.
void forbid_processes() {
#if defined(__x86_64__)
    constexpr unsigned machine = AUDIT_ARCH_X86_64;
#elif defined(__aarch64__)
    constexpr unsigned machine = AUDIT_ARCH_AARCH64;
#else
    return;
#endif
    const auto load = [](std::size_t offset) { return sock_filter BPF_STMT(BPF_LD | BPF_W | BPF_ABS, unsigned(offset)); };
    const auto answer = [](unsigned action) { return sock_filter BPF_STMT(BPF_RET | BPF_K, action); };
    // Goes on `skipped` instructions further on unless `condition` holds for what was loaded last.
    const auto unless = [](unsigned short condition, unsigned value, unsigned char skipped) {
        return sock_filter BPF_JUMP(static_cast<unsigned short>(BPF_JMP | condition | BPF_K), value, 0, skipped);
    };
    constexpr std::size_t number = offsetof(seccomp_data, nr), argument = offsetof(seccomp_data, args);
    std::vector<sock_filter> filter{load(offsetof(seccomp_data, arch)), unless(BPF_JEQ, machine, 1), load(number)};
    filter.insert(filter.begin() + 2, sock_filter BPF_STMT(BPF_JMP | BPF_JA, 1));
    filter.insert(filter.begin() + 3, answer(SECCOMP_RET_KILL_PROCESS));
    const auto forbid = [&](unsigned call) { filter.insert(filter.end(), {unless(BPF_JEQ, call, 1), answer(SECCOMP_RET_TRAP)}); };
#ifdef __x86_64__
    filter.insert(filter.end(), {unless(BPF_JGE, 0x40000000, 1), answer(SECCOMP_RET_TRAP)});  // the x32 numbers
    forbid(SYS_fork);
    forbid(SYS_vfork);
#endif
    for (const unsigned call : {SYS_execve, SYS_execveat, SYS_ptrace, SYS_process_vm_readv, SYS_process_vm_writev, SYS_tkill})
        forbid(call);
    // Its flags are in memory, where a filter cannot look; the C library then takes clone.
    filter.insert(filter.end(), {unless(BPF_JEQ, 435, 1), answer(SECCOMP_RET_ERRNO | ENOSYS)});
    filter.insert(filter.end(), {unless(BPF_JEQ, SYS_clone, 4), load(argument), unless(BPF_JSET, CLONE_THREAD, 1),
                                 answer(SECCOMP_RET_ALLOW), answer(SECCOMP_RET_TRAP)});
    for (const unsigned call : {SYS_kill, SYS_tgkill})
        filter.insert(filter.end(), {unless(BPF_JEQ, call, 4), load(argument), unless(BPF_JEQ, unsigned(getpid()), 1),
                                     answer(SECCOMP_RET_ALLOW), answer(SECCOMP_RET_TRAP)});
    filter.push_back(answer(SECCOMP_RET_ALLOW));
    const sock_fprog program{static_cast<unsigned short>(filter.size()), filter.data()};
    // SPEC_ALLOW: older Linux would otherwise slow the kernel down with mitigations that nothing here needs.
    syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_SPEC_ALLOW, &program);
}

}  // namespace

int main(int argc, char** argv) {
    if (argc != 2) return 2;
    channel = std::atoi(argv[1]);
    static char stack[1 << 16];
    const stack_t alternate{stack, 0, sizeof stack};
    sigaltstack(&alternate, nullptr);
    struct sigaction action {};
    action.sa_sigaction = on_fault;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    for (const int number : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGSYS}) sigaction(number, &action, nullptr);
    forbid_processes();
    for (;;) {
        Word header[2];
        std::vector<int> fds;
        receive(header, 2, fds);
        std::vector<Word> words(static_cast<std::size_t>(header[1]));
        receive(words.data(), words.size(), fds);
        switch (header[0]) {
            case LOAD: load(words); break;
            case BIND: bind(words, fds); break;
            case PLAN: define(words); break;
            case RUN: run(words); break;
            default: return 2;
        }
        for (const int fd : fds) close(fd);
    }
}
