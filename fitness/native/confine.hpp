// What a process gives up before it touches anything that a candidate wrote: files (Landlock) and system calls
// (seccomp). Both need no rights. Where the machine lacks one, the functions say so and leave the rest in place.
#pragma once
#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <fcntl.h>
#include <initializer_list>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <string>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <utility>
#include <vector>

namespace confine {

// Names of <linux/landlock.h>, which older kernel headers lack.
struct RulesetAttribute {
    std::uint64_t handled_files, handled_network;
};
struct __attribute__((packed)) PathRule {
    std::uint64_t allowed;
    std::int32_t parent;
};
constexpr std::uint64_t EXECUTE = 1 << 0, WRITE_FILE = 1 << 1, READ_FILE = 1 << 2, READ_DIR = 1 << 3, IOCTL_DEVICE = 1 << 15;
constexpr std::uint64_t ALL_FILES[] = {0, 0x1fff, 0x3fff, 0x7fff, 0x7fff, 0xffff};  // by ABI version
constexpr std::uint64_t CONNECT_BIND = 3;

inline int landlock_version() { return static_cast<int>(syscall(444, nullptr, 0, 1)); }

inline void allow(int ruleset, const std::string& path, std::uint64_t rights) {
    const int parent = open(path.c_str(), O_PATH | O_CLOEXEC);
    if (parent < 0) return;  // what does not exist needs no rule
    struct stat found;
    const bool folder = fstat(parent, &found) == 0 && S_ISDIR(found.st_mode);
    const PathRule rule{folder ? rights : rights & (EXECUTE | WRITE_FILE | READ_FILE | IOCTL_DEVICE), parent};  // others need a folder
    syscall(445, ruleset, 1, &rule, 0);
    close(parent);
}

// Everything else of the file system, and TCP, is out of reach from here on. False: this machine has no Landlock.
inline bool restrict_files(const std::vector<std::string>& readable, const std::vector<std::string>& writable) {
    const int version = landlock_version();
    if (version < 1) return false;
    const std::uint64_t files = ALL_FILES[version < 5 ? version : 5];
    const RulesetAttribute attribute{files, version >= 4 ? CONNECT_BIND : 0};
    const int ruleset = static_cast<int>(syscall(444, &attribute, version >= 4 ? 16 : 8, 0));
    if (ruleset < 0) return false;
    for (const auto& path : readable) allow(ruleset, path, EXECUTE | READ_FILE | READ_DIR);
    for (const auto& path : writable) allow(ruleset, path, files);
    allow(ruleset, "/dev/null", READ_FILE | WRITE_FILE);
    const bool done = syscall(446, ruleset, 0) == 0;
    close(ruleset);
    return done;
}

inline std::vector<std::string> split(const std::string& text, char separator) {
    std::vector<std::string> parts;
    for (std::size_t begin = 0; begin < text.size();) {
        const std::size_t end = std::min(text.find(separator, begin), text.size());
        if (end > begin) parts.push_back(text.substr(begin, end - begin));
        begin = end + 1;
    }
    return parts;
}

// A seccomp program, built rule by rule; the first rule that fits a call decides.
class Filter {
  public:
    Filter() {
#if defined(__x86_64__)
        constexpr unsigned machine = AUDIT_ARCH_X86_64;
#elif defined(__aarch64__)
        constexpr unsigned machine = AUDIT_ARCH_AARCH64;
#else
#error "seccomp filters are written for x86-64 and aarch64"
#endif
        load(offsetof(seccomp_data, arch));
        program_.push_back(sock_filter BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, machine, 1, 0));
        answer(SECCOMP_RET_KILL_PROCESS);
        load(offsetof(seccomp_data, nr));
#if defined(__x86_64__)
        unless(BPF_JGE, 0x40000000, 1);  // the x32 numbers
        answer(SECCOMP_RET_KILL_PROCESS);
#endif
    }
    void rule(unsigned action, std::initializer_list<unsigned> calls) {
        for (const unsigned call : calls) {
            unless(BPF_JEQ, call, 1);
            answer(action);
        }
    }
    // Decides about every use of `call`: by (the lower halves of) arguments, whether any has one of its bits set.
    void rule_if_bits(unsigned call, std::initializer_list<std::pair<int, unsigned>> bits, unsigned if_set, unsigned if_clear) {
        constexpr unsigned char TEST = 3;
        unless(BPF_JEQ, call, static_cast<unsigned char>(TEST * bits.size() + 1));
        for (const auto& [argument, bit] : bits) {
            load_argument(argument);
            unless(BPF_JSET, bit, 1);
            answer(if_set);
        }
        answer(if_clear);
    }
    // The same, by whether the whole (lower half) of each argument is as wanted.
    void rule_if_equal(unsigned call, std::initializer_list<std::pair<int, unsigned>> wanted, unsigned if_equal, unsigned otherwise) {
        auto left = static_cast<unsigned char>(2 * wanted.size() + 1);
        unless(BPF_JEQ, call, static_cast<unsigned char>(left + 1));
        for (const auto& [argument, value] : wanted) {
            left = static_cast<unsigned char>(left - 2);
            load_argument(argument);
            unless(BPF_JEQ, value, left);
        }
        answer(if_equal);
        answer(otherwise);
    }
    // Decides about every use of `call`: allowed where it comes from, by the address behind the instruction, and by the
    // third argument (a length), all as one of `sites` has it.
    void rule_from(unsigned call, std::initializer_list<std::pair<const char*, std::size_t>> sites, unsigned yes, unsigned no) {
        constexpr unsigned char SITE = 7;
        unless(BPF_JEQ, call, static_cast<unsigned char>(SITE * sites.size() + 1));
        for (const auto& [address, bytes] : sites) {
            const auto place = reinterpret_cast<std::uintptr_t>(address);
            load(offsetof(seccomp_data, instruction_pointer));
            unless(BPF_JEQ, static_cast<unsigned>(place), 5);
            load(offsetof(seccomp_data, instruction_pointer) + 4);
            unless(BPF_JEQ, static_cast<unsigned>(place >> 32), 3);
            load_argument(2);
            unless(BPF_JEQ, static_cast<unsigned>(bytes), 1);
            answer(yes);
        }
        answer(no);
    }
    // Decides about the uses of `call` that have an argument (its lower half), by whether others are as wanted, whole.
    void rule_where(unsigned call, std::pair<int, unsigned> has, std::initializer_list<std::pair<int, std::uint64_t>> wanted,
                    unsigned if_equal, unsigned otherwise) {
        auto left = static_cast<unsigned char>(4 * wanted.size() + 1);
        unless(BPF_JEQ, call, static_cast<unsigned char>(left + 4));
        load_argument(has.first);
        unless(BPF_JEQ, has.second, static_cast<unsigned char>(left + 1));
        for (const auto& [argument, value] : wanted)
            for (const int half : {0, 1}) {
                left = static_cast<unsigned char>(left - 2);
                load_argument(argument, half);
                unless(BPF_JEQ, static_cast<unsigned>(value >> 32 * half), left);
            }
        answer(if_equal);
        answer(otherwise);
        load(offsetof(seccomp_data, nr));
    }
    // All other calls get `action`. Needs NO_NEW_PRIVS. False: this machine has no seccomp.
    bool install(unsigned action) {
        const sock_fprog program = whole(action);
        // SPEC_ALLOW: older Linux would otherwise slow the process down with mitigations that nothing here needs.
        return syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_SPEC_ALLOW, &program) == 0;
    }
    // The same for a process in a simulator that knows the older call alone; it confines the simulator too.
    bool install_simulated(unsigned action) {
        const sock_fprog program = whole(action);
        return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
    }

  private:
    sock_fprog whole(unsigned action) {
        answer(action);
        return {static_cast<unsigned short>(program_.size()), program_.data()};
    }
    void load_argument(int number, int half = 0) {
        load(offsetof(seccomp_data, args) + 8 * static_cast<unsigned>(number) + 4 * static_cast<unsigned>(half));
    }
    void load(std::size_t offset) { program_.push_back(sock_filter BPF_STMT(BPF_LD | BPF_W | BPF_ABS, unsigned(offset))); }
    void answer(unsigned action) { program_.push_back(sock_filter BPF_STMT(BPF_RET | BPF_K, action)); }
    // Goes on `skipped` instructions further on unless `condition` holds for what was loaded last.
    void unless(unsigned short condition, unsigned value, unsigned char skipped) {
        program_.push_back(sock_filter BPF_JUMP(static_cast<unsigned short>(BPF_JMP | condition | BPF_K), value, 0, skipped));
    }
    std::vector<sock_filter> program_;
};

// For programs whose system calls are too many to name.
inline void forbid_network_and_others() {
    Filter filter;
    filter.rule(SECCOMP_RET_ERRNO | EPERM,
                {SYS_socket, SYS_ptrace, SYS_process_vm_readv, SYS_process_vm_writev, SYS_mount, SYS_unshare, SYS_setns, SYS_bpf,
                 SYS_keyctl, SYS_add_key, SYS_perf_event_open, SYS_userfaultfd});
    filter.install(SECCOMP_RET_ALLOW);
}

}  // namespace confine
