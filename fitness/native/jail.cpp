// Runs one program under limits, in a session of its own, dying with its owner.
//
//   jail OWNER_PID CPU_SECONDS MEMORY_BYTES FILE_BYTES READABLE WRITABLE ALONE -- PROGRAM ARGUMENTS...
//
// A limit of 0 leaves that one as it is. READABLE and WRITABLE are paths joined by `:`; with READABLE = `*` files stay
// as they are, otherwise everything else is out of reach (Landlock) and so is the network. With ALONE = 1 the program and
// whatever it starts see no other processes: there is nobody whom a signal of theirs could reach, and with the program
// all of them end. A machine that forbids it leaves that out (`evo doctor` tells).
#include "confine.hpp"
#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>

constexpr rlim_t STACK_BYTES = 8 << 20;

static void limit(decltype(RLIMIT_CPU) what, rlim_t value) {
    const rlimit both{value, value};
    if (setrlimit(what, &both) != 0) {
        std::perror("jail: setrlimit");
        std::exit(125);
    }
}

static void put(const char* path, const std::string& text) {
    const int file = open(path, O_WRONLY | O_CLOEXEC);
    if (file < 0 || write(file, text.data(), text.size()) < 0) {
        std::perror(path);
        std::exit(125);
    }
    close(file);
}

// From here on children have numbers of their own. Without root's rights this takes a namespace of users too, in which
// whoever asks stays who he is.
static bool number_apart() {
    if (unshare(CLONE_NEWPID) == 0) return true;
    const std::string user = std::to_string(geteuid()), group = std::to_string(getegid());
    if (unshare(CLONE_NEWUSER | CLONE_NEWPID) != 0) return false;
    put("/proc/self/uid_map", user + " " + user + " 1");
    put("/proc/self/setgroups", "deny");
    put("/proc/self/gid_map", group + " " + group + " 1");
    return true;
}

static void close_all() {
    constexpr long CLOSE_RANGE = 436;  // Linux 5.9
    if (syscall(CLOSE_RANGE, 0, ~0U, 0) == 0) return;
    for (int fd = 0; fd < static_cast<int>(sysconf(_SC_OPEN_MAX)); ++fd) close(fd);
}

static pid_t first;  // with which all others in its namespace end

// Returns in the program's process alone. The first child does nothing but live until its end. We see how the program
// ends, and end alike; asked to end (SIGTERM) we take them all along, and leave nobody for others to bury.
static void start_alone() {
    first = fork();
    if (first == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        close_all();
        signal(SIGCHLD, SIG_IGN);  // nobody waits for orphans
        while (getppid() == 0) pause();  // 0: its parent is outside
        _exit(0);
    }
    const pid_t program = first < 0 ? -1 : fork();
    if (program == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != 0) _exit(125);
        setsid();  // signals to its own group reach us no more
        return;
    }
    signal(SIGTERM, [](int) { kill(first, SIGKILL); });
    close_all();
    int status = 0;
    if (program < 0 || waitpid(program, &status, 0) != program) status = 125 << 8;
    if (first > 0) kill(first, SIGKILL), waitpid(first, nullptr, 0);
    if (WIFSIGNALED(status)) {
        signal(WTERMSIG(status), SIG_DFL);
        raise(WTERMSIG(status));
    }
    _exit(WEXITSTATUS(status));
}

int main(int argc, char** argv) {
    if (argc < 10 || std::strcmp(argv[8], "--") != 0) {
        std::fputs("usage: jail OWNER_PID CPU_SECONDS MEMORY_BYTES FILE_BYTES READABLE WRITABLE ALONE -- PROGRAM...\n", stderr);
        return 125;
    }
    setsid();
    const bool alone = std::strcmp(argv[7], "1") == 0 && number_apart();
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != std::atoi(argv[1])) return 125;  // the owner died before the line above took effect
    const auto value = [&](int i) { return static_cast<rlim_t>(std::strtoull(argv[i], nullptr, 10)); };
    limit(RLIMIT_CORE, 0);
    // Whatever the owner allows itself: where a stack ends must not depend on who runs a kernel.
    rlimit stack;
    getrlimit(RLIMIT_STACK, &stack);
    stack.rlim_cur = std::min<rlim_t>(STACK_BYTES, stack.rlim_max);
    setrlimit(RLIMIT_STACK, &stack);
    if (value(2)) limit(RLIMIT_CPU, value(2));
    if (value(3)) limit(RLIMIT_AS, value(3));
    if (value(4)) limit(RLIMIT_FSIZE, value(4));
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    if (alone) start_alone();  // before paths are looked up: one is /proc/self
    if (std::strcmp(argv[5], "*") != 0) {
        confine::restrict_files(confine::split(argv[5], ':'), confine::split(argv[6], ':'));
        confine::forbid_network_and_others();
    }
    execvp(argv[9], argv + 9);
    std::perror(argv[9]);
    return 125;
}
