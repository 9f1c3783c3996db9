// Runs candidate kernels, each call in a child of its own: maps the buffers it is handed, forks, and the child gives up
// all but a few system calls and calls the launches. Nothing that a call leaves in memory survives it, but in the
// buffers, which the verifier owns. No process here holds an expected value or gives a verdict.
//
// How long a call took is for the operating system to say: it stamps the child's first word, which is sent before any
// instruction of a candidate runs, and its last one, behind which nothing but the end of the process can follow (see
// `last_word`). No clock is read where a candidate could reach it. Other threads live on for some microseconds behind
// that stamp. What they would still write is lost in sealed calls, which no candidate can tell from others: the order that
// is read with the last word takes the buffers away before it is sent.
//
//   runner SOCKET_FD
//
// Messages both ways are 64-bit words: [what, count, word...]. Requests:
//   MAP   [orders of fitness/cpu/image.py] with an fd of the linked object  -> [OK, 1, launches]; files are out of reach
//   BIND  [slot, buffers, (which fd, file offset, map bytes, data offset) * buffers] with two fds (inputs, work)
//                                                           -> [OK, buffers, address...]
//   PLAN  [id, zeros, (buffer, bytes) * zeros, steps, (launch, args, (is buffer, value) * args) * steps] -> [OK, 0]
//   RUN   [plan, slot, poison, stack bytes poisoned, milliseconds, deep stack bytes, threads or 0, whether to look] with
//         an fd of the order, a pipe that holds a secret or, of a sealed call, a file that begins with it, and of a file full
//         of poison if deep stack bytes  -> [OK, 4, nanoseconds, nanoseconds from its last word until it was gone, the secret
//         as it was told, what it left changed]. A look waits for all threads of the team: it is for no sealed or timed call.
// Replies that are not OK: [ERROR, bytes, text padded], [SIGNAL, 2, number, address or system call],
// [TIMEOUT, 0], [EXIT, 1, code], [FORGED, 0], [CLOCK_SET, 0].
#include "../native/confine.hpp"
#include "../native/image.hpp"
#include <alloca.h>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <limits>
#include <map>
#include <omp.h>
#include <poll.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <thread>

// The only instructions of a child by which it may send or receive anything, and only so many bytes by each. Whoever
// comes to `last_word`, by whatever way, reads the order, obeys it and sends its words; the next thing that happens is the
// end of the process and of all its threads. None of these instructions waits, nor goes by what another thread could have
// changed unless the filter of system calls knows better, and a fault or a signal there ends the process with another word.
// So no candidate can say that it is done and go on, nor say it without the order, nor learn of one that it does not obey.
//
// The order is the secret that the last word tells. In a pipe it can be read. Else it lies in a file whose reader is at its
// end, and is there for whoever maps that file over all buffers: by the one system call that takes them away.
#define SECRET_BYTES 8
#define WORDS 4
extern "C" long first_word(int socket, const void* data, std::size_t bytes);
extern "C" [[noreturn]] void last_word(int socket, std::int64_t (&data)[WORDS]);  // the last of them is the secret
extern "C" [[noreturn]] void fault_word(int socket, std::int64_t (&data)[WORDS]);  // the same without an order
extern "C" const char first_word_sent[], last_order_read[], last_word_sent[];  // where a processor stands in such a call
extern "C" {
std::int64_t secret;
std::int64_t lent[2];  // where the buffers begin, and all bytes from there to the end of the last one
}
#define TEXT(value) #value
#define NUMBER(value) TEXT(value)
#if defined(__x86_64__)
asm(R"(
    .pushsection .text
first_word:
    mov $1, %eax  # write
    syscall
first_word_sent:
    ret
last_word:
    mov %edi, %r12d
    mov %rsi, %r13
    xor %eax, %eax  # read
    mov $1, %edi
    lea secret(%rip), %rsi
    mov $)" NUMBER(SECRET_BYTES) R"(, %edx
    syscall
last_order_read:
    cmp $)" NUMBER(SECRET_BYTES) R"(, %rax
    mov secret(%rip), %rax
    je 1f
    mov $9, %eax  # mmap
    mov lent(%rip), %rdi
    mov lent + 8(%rip), %rsi
    mov $1, %edx  # PROT_READ
    mov $0x12, %r10d  # MAP_PRIVATE | MAP_FIXED
    mov $1, %r8d
    xor %r9d, %r9d
    syscall
    mov (%rdi), %rax
1:  mov %rax, 8 * )" NUMBER((WORDS - 1)) R"((%r13)
2:  mov $1, %eax
    mov %r12d, %edi
    mov %r13, %rsi
    mov $8 * )" NUMBER((WORDS)) R"(, %edx
    syscall
last_word_sent:
    xor %edi, %edi
    mov $231, %eax  # exit_group
    syscall
    hlt
fault_word:
    mov %edi, %r12d
    mov %rsi, %r13
    jmp 2b
    .popsection
)");
#elif defined(__aarch64__)
asm(R"(
    .pushsection .text
first_word:
    mov x8, #64  // write
    svc #0
first_word_sent:
    ret
last_word:
    mov w20, w0
    mov x21, x1
    adrp x22, secret
    add x22, x22, :lo12:secret
    mov x8, #63  // read
    mov x0, #1
    mov x1, x22
    mov x2, #)" NUMBER(SECRET_BYTES) R"(
    svc #0
last_order_read:
    cmp x0, #)" NUMBER(SECRET_BYTES) R"(
    ldr x9, [x22]
    b.eq 1f
    mov x8, #222  // mmap
    adrp x22, lent
    add x22, x22, :lo12:lent
    ldp x23, x1, [x22]
    mov x0, x23
    mov x2, #1  // PROT_READ
    mov x3, #0x12  // MAP_PRIVATE | MAP_FIXED
    mov x4, #1
    mov x5, #0
    svc #0
    ldr x9, [x23]
1:  str x9, [x21, #8 * )" NUMBER((WORDS - 1)) R"(]
2:  mov x8, #64
    mov w0, w20
    mov x1, x21
    mov x2, #8 * )" NUMBER((WORDS)) R"(
    svc #0
last_word_sent:
    mov x0, #0
    mov x8, #94  // exit_group
    svc #0
    brk #0
fault_word:
    mov w20, w0
    mov x21, x1
    b 2b
    .popsection
)");
#endif

namespace {

using image::Launch;
using image::Word;
enum Request : Word { BIND = 2, PLAN = 3, RUN = 4, MAP = 5 };
enum Reply : Word { OK = 0, ERROR = 1, SIGNAL = 2, TIMEOUT = 3, EXIT = 4, FORGED = 5, CLOCK_SET = 6 };
enum Note : Word { END = 2, FAULT = 3 };  // a last word: [note, value, value, secret]
constexpr std::size_t FIRST_BYTES = 1, LAST_BYTES = WORDS * sizeof(Word);
constexpr int NOTES = 0, ORDERS = 1;  // a child's only descriptors: a socket that it speaks through, and its order
constexpr std::size_t GUARD_BYTES = 4 << 20;
constexpr std::size_t OWN_FRAMES_BYTES = 32 << 10;  // of a stack, what our own calls may have in use just now
constexpr std::size_t BEYOND_BYTES = 1 << 20;
constexpr Word MOST_SET_NS = 20'000;  // more than reading two clocks is off by
constexpr rlim_t SPARE_THREADS = 16;  // for this process and its first thread, and for those that are about to end
constexpr rlim_t PRIVATE_BYTES = rlim_t{1} << 30;  // of one call, stacks of threads apart; buffers are shared memory

struct Mapping {
    char* begin;
    std::size_t bytes;
    char* data;
};
struct Slot {
    char* begin = nullptr;  // of one range of addresses that has all buffers, each between unmapped pages
    std::size_t bytes = 0;
    std::vector<Mapping> buffers;
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
std::map<Word, Slot> slots;
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

bool own_users = false;  // whether this process counts as another user than the same one elsewhere

void on_fault(int number, siginfo_t* info, void*) {
    Word words[] = {FAULT, number, number == SIGSYS ? info->si_syscall : reinterpret_cast<Word>(info->si_addr), 0};
    fault_word(NOTES, words);
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

void map_image(const std::vector<Word>& words, const std::vector<int>& fds) {
    confine::restrict_files({}, {});
    const image::Mapped mapped = image::map(words.data(), fds.at(0));
    if (!mapped.problem.empty()) return reply_error(mapped.problem);
    launches = mapped.launches;
    reply(OK, {static_cast<Word>(launches.size())});
}

void bind(const std::vector<Word>& words, const std::vector<int>& fds) {
    Slot& slot = slots[words[0]];
    if (slot.begin) munmap(slot.begin, slot.bytes);
    slot = {};
    std::size_t bytes = 0;
    for (Word i = 0; i < words[1]; ++i) bytes += static_cast<std::size_t>(words.data()[4 + 4 * i]) + 2 * GUARD_BYTES;
    void* reserved = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (reserved == MAP_FAILED) return reply_error("cannot reserve address space for the buffers");
    slot.begin = static_cast<char*>(reserved);
    slot.bytes = bytes;
    std::vector<Word> addresses;
    char* begin = slot.begin + GUARD_BYTES;
    for (Word i = 0; i < words[1]; ++i) {
        const Word* entry = words.data() + 2 + 4 * i;
        const bool writable = entry[0] == 1;
        const auto map_bytes = static_cast<std::size_t>(entry[2]);
        const int protection = writable ? PROT_READ | PROT_WRITE : PROT_READ;
        if (mmap(begin, map_bytes, protection, MAP_SHARED | MAP_FIXED, fds.at(writable), entry[1]) == MAP_FAILED)
            return reply_error("cannot map a buffer");
        slot.buffers.push_back({begin, map_bytes, begin + entry[3]});
        addresses.push_back(reinterpret_cast<Word>(slot.buffers.back().data));
        begin += map_bytes + 2 * GUARD_BYTES;
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

// --- the child ------------------------------------------------------------------------------------------------------

// No descriptor but two: not the verifier's channel, not the memory of other calls.
void keep_only(int notes, int orders) {
    constexpr long CLOSE_RANGE = 436;  // Linux 5.9
    if (dup2(notes, NOTES) != NOTES || dup2(orders, ORDERS) != ORDERS) _exit(3);
    if (syscall(CLOSE_RANGE, ORDERS + 1, ~0U, 0) == 0) return;
    for (int fd = ORDERS + 1; fd < static_cast<int>(sysconf(_SC_OPEN_MAX)); ++fd) close(fd);
}

// What a kernel needs: memory, threads, locks. Asking for a file fails as if there were none, since the C library may
// look for one; anything else ends the call.
void confine_child() {
    confine::Filter filter;
    constexpr unsigned ALLOW = SECCOMP_RET_ALLOW, TRAP = SECCOMP_RET_TRAP;
    filter.rule(ALLOW, {SYS_futex, SYS_munmap, SYS_brk, SYS_set_robust_list, SYS_rt_sigprocmask,
                        SYS_rt_sigreturn, SYS_sched_yield, SYS_sched_getaffinity, SYS_gettid, SYS_getpid,
                        SYS_exit, SYS_exit_group, SYS_getcpu, SYS_sigaltstack, SYS_getrandom,
                        SYS_restart_syscall});
    filter.rule_from(SYS_write, {{first_word_sent, FIRST_BYTES}, {last_word_sent, LAST_BYTES}}, ALLOW, TRAP);
    filter.rule_from(SYS_read, {{last_order_read, SECRET_BYTES}}, ALLOW, TRAP);
    // The order takes all buffers away, or it is not told: it serves nothing else, which would tell whether it is such a one.
    const auto begin = static_cast<std::uint64_t>(lent[0]), bytes = static_cast<std::uint64_t>(lent[1]);
    filter.rule_where(SYS_mmap, {4, ORDERS},
                      {{0, begin}, {1, bytes}, {2, PROT_READ}, {3, MAP_PRIVATE | MAP_FIXED}, {5, 0}}, ALLOW, TRAP);
    // No code comes to where none was: neither new code, nor such as is moved there, behind the last word for example.
    filter.rule_if_bits(SYS_mmap, {{2, PROT_EXEC}, {3, MAP_SHARED}}, TRAP, ALLOW);  // shared memory counts for no limit
    filter.rule_if_bits(SYS_mprotect, {{2, PROT_EXEC}}, TRAP, ALLOW);
    filter.rule(SECCOMP_RET_ERRNO | ENOMEM, {SYS_mremap});  // the C library copies then
    // Nothing else than to give up its own pages: how the system keeps those that others share would outlive the call.
    filter.rule_if_equal(SYS_madvise, {{2, MADV_DONTNEED}}, ALLOW, SECCOMP_RET_ERRNO | EINVAL);
    // Clocks of the machine, not of processes: what the verifier does just now is not for a kernel to know.
    filter.rule_if_bits(SYS_clock_gettime, {{0, 1U << 31}}, SECCOMP_RET_ERRNO | EINVAL, ALLOW);
    filter.rule_if_bits(SYS_clone, {{0, CLONE_THREAD}}, ALLOW, TRAP);
    filter.rule_if_equal(SYS_sched_setaffinity, {{0, 0}}, ALLOW, TRAP);  // of itself, not of whoever it is compared with
    // abort(), and no other signal: one that others send would have the kernel judged again, on other inputs.
    filter.rule_if_equal(SYS_tgkill, {{0, static_cast<unsigned>(getpid())}, {2, SIGABRT}}, ALLOW, TRAP);
    // clone3: a filter cannot see its flags, the C library takes clone. rseq: the system would throw a thread out of our own
    // instructions where it interrupts them, behind the last word for example.
    filter.rule(SECCOMP_RET_ERRNO | ENOSYS, {435, SYS_rseq});
    filter.rule(SECCOMP_RET_ERRNO | EACCES, {SYS_openat});
    filter.rule(SECCOMP_RET_ERRNO | EINVAL, {SYS_prctl});  // names for threads and mappings
#ifdef SYS_open
    filter.rule(SECCOMP_RET_ERRNO | EACCES, {SYS_open});
#endif
    filter.install(TRAP);
}

// No buffer of another slot is in reach, what this one needs is mapped, so that no timed access waits for the kernel.
void map_only(Word used) {
    for (const auto& [number, slot] : slots) {
        if (number != used) {
            munmap(slot.begin, slot.bytes);
            continue;
        }
#ifdef MADV_POPULATE_READ
        // Pages of shared memory come writable where the mapping is, and in one go, which writing faults would not.
        for (const Mapping& buffer : slot.buffers) madvise(buffer.begin, buffer.bytes, MADV_POPULATE_READ);
#endif
    }
}

// What poisons stacks as far as they go: a file full of it, by which `bytes` of every stack are replaced.
struct Below {
    int file;
    std::size_t bytes;
};

// Of the file everybody sees his own copy, page by page as he writes to it; what nobody touches costs nothing.
__attribute__((noinline)) void lay_below(const Below& below, std::size_t bytes) {
    struct stat file;
    if (fstat(below.file, &file) != 0 || file.st_size == 0) _exit(3);
    const auto page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
    const auto here = reinterpret_cast<std::uintptr_t>(__builtin_frame_address(0)), end = (here - OWN_FRAMES_BYTES) / page * page;
    for (std::uintptr_t begin = (here - bytes) / page * page; begin < end; begin += static_cast<std::uintptr_t>(file.st_size)) {
        const std::size_t part = std::min<std::size_t>(end - begin, static_cast<std::size_t>(file.st_size));
        if (mmap(reinterpret_cast<void*>(begin), part, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED, below.file, 0) == MAP_FAILED)
            _exit(3);
    }
}

// Starts the threads. Each has a core of its own: who wanders between cores is timed twice as unsteadily. (The OpenMP
// library could bind them too, but would do so for threads beyond one per core later, where a kernel may not.) Locals
// that are read before they are written show the poison, on every thread.
void start_threads(int poison, std::size_t bytes, const Below& below) {
    cpu_set_t ours;
    std::vector<std::size_t> cores;
    if (sched_getaffinity(0, sizeof ours, &ours) == 0)
        for (std::size_t core = 0; core < CPU_SETSIZE; ++core)
            if (CPU_ISSET(core, &ours)) cores.push_back(core);
#pragma omp parallel
    {
        const auto number = static_cast<std::size_t>(omp_get_thread_num());
        if (number < cores.size()) {
            cpu_set_t own;
            CPU_ZERO(&own);
            CPU_SET(cores[number], &own);
            sched_setaffinity(0, sizeof own, &own);
        }
        // The main thread's stack would grow on, and cannot beyond what lies there now: it is given all it may have.
        if (below.bytes) lay_below(below, below.bytes + (number == 0 ? BEYOND_BYTES : 0));
        void* stack = alloca(bytes);
        std::memset(stack, poison, bytes);
        asm volatile("" ::"r"(stack) : "memory");
    }
}

// Until the parent sleeps and the threads of the team have stopped looking for work: beside either, times vary twice as
// much where processors share a core.
void settle() {
    for (const Word until = nanoseconds() + 500'000; nanoseconds() < until;) {}
}

// Whether the system counts this call's threads apart from all others of its user. Root, whose threads it never counts,
// becomes a user whom nobody else is, by a number that is drawn; who started the call may still end it.
bool counted_apart() {
    if (geteuid() != 0) return own_users;
    std::uint32_t drawn = 0;
    if (getrandom(&drawn, sizeof drawn, GRND_NONBLOCK) != sizeof drawn) return false;
    const long nobody = 0x40000000L | drawn >> 2;
    return syscall(SYS_setresuid, nobody, nobody, -1) == 0;
}

// No call may take the memory of the whole machine, nor all numbers that it has for threads: nobody else could start one.
void limit_memory_and_threads() {
    const auto most = static_cast<rlim_t>(std::max(omp_get_thread_limit(), omp_get_max_threads())) + SPARE_THREADS;
    const rlimit threads{most, most};
    if (counted_apart()) setrlimit(RLIMIT_NPROC, &threads);
    const rlim_t bytes = PRIVATE_BYTES + static_cast<rlim_t>(omp_get_max_threads()) * 64 * (1 << 20);
    const rlimit both{bytes, bytes};
    setrlimit(RLIMIT_DATA, &both);
}

// How the calling thread computes, which outlives a call in a program: what an exception left in its flags does not count.
Word float_mode() {
#if defined(__x86_64__)
    std::uint32_t vectors;
    struct {
        std::uint16_t control, unused, status, unused_too, tags, unused_last;
        std::uint32_t places[4];
    } stack;
    asm volatile("stmxcsr %0\n\tfnstenv %1\n\tfldenv %1" : "=m"(vectors), "=m"(stack));
    return Word{vectors & 0xffc0} | Word{stack.control} << 16 | Word{stack.tags} << 32;
#elif defined(__aarch64__)
    Word mode;
    asm volatile("mrs %0, fpcr" : "=r"(mode));
    return mode;
#else
    return 0;
#endif
}

// Settings that a kernel may change for all that its caller does from then on. A call's own process hides that; a program
// that calls the kernel has one process.
struct Settings {
    int threads = omp_get_max_threads(), dynamic = omp_get_dynamic(), levels = omp_get_max_active_levels(), chunk;
    omp_sched_t schedule;
    Word mode = float_mode();
    Settings() { omp_get_schedule(&schedule, &chunk); }
    bool same_teams(const Settings& other) const {
        return threads == other.threads && dynamic == other.dynamic && levels == other.levels && schedule == other.schedule && chunk == other.chunk;
    }
};

enum Left : Word { TEAMS = 1, MODE = 2 };

// What is not as it was before the kernel ran, on any thread of the team.
Word left_changed(const Settings& before) {
    const Settings after;
    Word left = after.same_teams(before) ? 0 : TEAMS;
    omp_set_dynamic(before.dynamic);
    omp_set_max_active_levels(before.levels);
    omp_set_num_threads(before.threads);
#pragma omp parallel reduction(| : left)
    if (float_mode() != before.mode) left |= MODE;
    return left;
}

// What a child speaks through and, in the end, obeys.
struct Ends {
    int notes, orders;
};

[[noreturn]] void child(pid_t owner, const Plan& plan, Word slot, int poison, std::size_t stack_bytes, const Below& below, int team, bool looks, Ends ends) {
    // How the stack lies to the buffers, modulo a page, decides which accesses the processor takes for one another: each
    // call draws anew, so that it is no property of the process that a kernel happens to be in.
    void* shift = alloca(static_cast<std::size_t>(nanoseconds() / 16 % 256) * 16 + 16);
    asm volatile("" ::"r"(shift) : "memory");
    const auto& [begin, bytes, buffers] = slots.at(slot);
    lent[0] = reinterpret_cast<Word>(begin);
    lent[1] = static_cast<Word>(bytes);
    std::vector<std::vector<Word>> values;
    std::vector<std::vector<void*>> pointers;
    for (const Step& step : plan.steps) {
        values.emplace_back();
        for (const auto& [is_buffer, value] : step.args)
            values.back().push_back(is_buffer ? reinterpret_cast<Word>(buffers.at(static_cast<std::size_t>(value)).data) : value);
        pointers.emplace_back();
        for (Word& value : values.back()) pointers.back().push_back(&value);
    }
    map_only(slot);
    if (team) omp_set_num_threads(team);
    // In this order: with its user a process loses what it has asked for.
    limit_memory_and_threads();
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != owner) _exit(3);
    start_threads(poison, stack_bytes, below);
    keep_only(ends.notes, ends.orders);
    confine_child();
    const Settings before;
    settle();
    first_word(NOTES, "", FIRST_BYTES);
    for (const auto& [buffer, bytes] : plan.zeros)
        std::memset(buffers[static_cast<std::size_t>(buffer)].data, 0, static_cast<std::size_t>(bytes));
    for (std::size_t i = 0; i < plan.steps.size(); ++i) plan.steps[i].launch(pointers[i].data());
    Word words[] = {END, looks ? left_changed(before) : 0, 0, 0};
    last_word(NOTES, words);
}

// --- the parent -----------------------------------------------------------------------------------------------------

// What a child sent, when the system had it, and how much that was.
struct Said {
    Word words[WORDS];
    std::size_t bytes;
    Word sent;
};

// The time of day, which stamps are in.
Word time_of_day() {
    timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return Word{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

// How far the time of day is from a clock that nobody can set: where that changes during a call, the time was set.
Word time_was_set_to() {
    Word best = 0, shortest = 0;
    for (int attempt = 0; attempt < 5; ++attempt) {  // what interrupts us between the clocks would look like it
        timespec before, after;
        clock_gettime(CLOCK_MONOTONIC, &before);
        const Word day = time_of_day();
        clock_gettime(CLOCK_MONOTONIC, &after);
        const Word took = Word{after.tv_sec - before.tv_sec} * 1'000'000'000 + after.tv_nsec - before.tv_nsec;
        if (attempt > 0 && took >= shortest) continue;
        shortest = took;
        best = day - Word{before.tv_sec} * 1'000'000'000 - before.tv_nsec - took / 2;
    }
    return best;
}

constexpr Word PATIENCE = 4, PARTS = 8;

// Whether the process at the other end, all its threads, has ended in time: nothing else wakes us, least of all a word.
bool ended(int from, Word milliseconds) {
    const Word deadline = nanoseconds() + milliseconds * 1'000'000;
    for (;;) {
        const Word left = deadline - nanoseconds();
        if (left <= 0) return false;
        const timespec wait{static_cast<time_t>(left / 1'000'000'000), static_cast<long>(left % 1'000'000'000)};
        pollfd source{from, 0, 0};
        if (ppoll(&source, 1, &wait, nullptr) > 0) return true;
    }
}

// CPU time of all threads of a process, as long as it is not waited for.
Word computed_ns(pid_t pid) {
    clockid_t clock;
    timespec used;
    if (clock_getcpuclockid(pid, &clock) != 0 || clock_gettime(clock, &used) != 0) return std::numeric_limits<Word>::max();
    return Word{used.tv_sec} * 1'000'000'000 + used.tv_nsec;
}

// Whether a call ends in time. On a busy machine it may wait for a processor, and on a short one for its memory: until
// it has computed for as long as its limit is, it has up to PATIENCE times as long.
bool ended_in_time(int from, pid_t pid, Word milliseconds) {
    bool found = ended(from, milliseconds);
    for (Word part = 0; !found && part < PARTS * (PATIENCE - 1) && computed_ns(pid) < milliseconds * 1'000'000; ++part)
        found = ended(from, milliseconds / PARTS);
    return found;
}

std::vector<Said> heard(int from) {
    std::vector<Said> all;
    for (;;) {
        Said said{};
        iovec io{said.words, sizeof said.words};
        alignas(cmsghdr) char control[CMSG_SPACE(sizeof(timespec))];
        msghdr message{};
        message.msg_iov = &io;
        message.msg_iovlen = 1;
        message.msg_control = control;
        message.msg_controllen = sizeof control;
        const ssize_t bytes = recvmsg(from, &message, MSG_DONTWAIT);
        if (bytes <= 0) return all;
        said.bytes = static_cast<std::size_t>(bytes);
        for (cmsghdr* c = CMSG_FIRSTHDR(&message); c; c = CMSG_NXTHDR(&message, c)) {
            if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_TIMESTAMPNS) continue;
            timespec when;
            std::memcpy(&when, CMSG_DATA(c), sizeof when);
            said.sent = Word{when.tv_sec} * 1'000'000'000 + when.tv_nsec;
        }
        all.push_back(said);
    }
}

// Lets some numbers of processes go by, as many as is drawn: nobody else does in a namespace of our own, where a call
// would know by its number whether it is an even one.
void skip_numbers() {
    unsigned char drawn = 0;
    if (getrandom(&drawn, sizeof drawn, GRND_NONBLOCK) != sizeof drawn) return;
    for (int left = drawn % 4; left > 0; --left) std::thread([] {}).join();
}

void run(const std::vector<Word>& words, const std::vector<int>& fds) {
    const Plan& plan = plans.at(words[0]);
    int ends[2];
    const int yes = 1;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0 ||
        setsockopt(ends[0], SOL_SOCKET, SO_TIMESTAMPNS, &yes, sizeof yes) != 0)
        return reply_error("cannot make a socket that stamps what it is sent");
    const pid_t owner = getpid();
    const Word set_to = time_was_set_to();
    skip_numbers();
    const pid_t pid = fork();
    if (pid < 0) return reply_error("cannot fork");
    if (pid == 0) {
        const Below below{words[5] ? fds.at(1) : -1, static_cast<std::size_t>(words[5])};
        child(owner, plan, words[1], static_cast<int>(words[2]), static_cast<std::size_t>(words[3]), below, static_cast<int>(words[6]),
              words[7] != 0, {ends[1], fds.at(0)});
    }
    close(ends[1]);
    const bool in_time = ended_in_time(ends[0], pid, words[4]);
    const Word gone = time_of_day();
    const Word set_by = time_was_set_to() - set_to;
    kill(pid, SIGKILL);
    int status = 0;
    waitpid(pid, &status, 0);
    const std::vector<Said> said = heard(ends[0]);
    close(ends[0]);
    if (!in_time) return reply(TIMEOUT, {});
    for (const Said& one : said)  // before the kernel began, in it, or of a thread that went on after its end
        if (one.bytes == LAST_BYTES && one.words[0] == FAULT) return reply(SIGNAL, {one.words[1], one.words[2]});
    if (said.size() > 2) return reply(FORGED, {});
    if (said.size() == 2 && said[1].bytes == LAST_BYTES) {
        if (std::abs(set_by) > MOST_SET_NS) return reply(CLOCK_SET, {});
        if (said[0].sent == 0 || said[1].sent == 0)
            return reply_error("this system does not stamp what is sent through local sockets, so no call can be timed");
        if (said[0].bytes == FIRST_BYTES && said[1].words[0] == END)
            return reply(OK, {said[1].sent - said[0].sent, gone - said[1].sent, said[1].words[WORDS - 1], said[1].words[1]});
    }
    if (WIFSIGNALED(status)) return reply(SIGNAL, {WTERMSIG(status), 0});
    if (said.size() == 1 && WIFEXITED(status)) return reply(EXIT, {WEXITSTATUS(status)});
    reply(FORGED, {});
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
    for (const int number : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGSYS, SIGXCPU}) sigaction(number, &action, nullptr);
    own_users = geteuid() != 0 && unshare(CLONE_NEWUSER) == 0;
    // The C library prepares signals when a process starts its first thread, which no kernel may do: a team of one has
    // not started any when the kernel asks for a second.
    std::thread([] {}).join();
    for (;;) {
        Word header[2];
        std::vector<int> fds;
        receive(header, 2, fds);
        std::vector<Word> words(static_cast<std::size_t>(header[1]));
        receive(words.data(), words.size(), fds);
        switch (header[0]) {
            case MAP: map_image(words, fds); break;
            case BIND: bind(words, fds); break;
            case PLAN: define(words); break;
            case RUN: run(words, fds); break;
            default: return 2;
        }
        for (const int fd : fds) close(fd);
    }
}
