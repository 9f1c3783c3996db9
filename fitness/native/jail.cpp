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
#include <poll.h>
#include <sched.h>
#include <sys/mman.h>
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

static void close_from(unsigned begin) {
    constexpr long CLOSE_RANGE = 436;  // Linux 5.9
    if (syscall(CLOSE_RANGE, begin, ~0U, 0) == 0) return;
    for (int fd = static_cast<int>(begin); fd < static_cast<int>(sysconf(_SC_OPEN_MAX)); ++fd) close(fd);
}

static pid_t first;  // with which all others in its namespace end

// The first process of the namespace starts the program and buries whoever dies there: were that left to somebody
// outside who does not, its own end would wait for him. `owner` is a pipe that ends when the jail does.
static void keep(int owner, int* status) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    pollfd gone{owner, 0, 0};
    if (poll(&gone, 1, 0) != 0) _exit(0);  // the jail died before the line above took effect
    close(owner);
    const pid_t program = fork();
    if (program == 0) {
        setsid();  // signals to its own group reach the jail no more
        return;
    }
    close_from(0);
    int ended = 0;
    pid_t dead;
    do dead = waitpid(-1, &ended, 0);
    while (dead > 0 && dead != program);
    if (dead == program) *status = ended;
    _exit(0);
}

// Returns in the program's process alone. We see how the program ends, and end alike; asked to end (SIGTERM) we take all
// of the namespace along, and leave nobody for others to bury.
static void start_alone() {
    int* status = static_cast<int*>(mmap(nullptr, sizeof(int), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    int owner[2];
    if (status == MAP_FAILED || pipe2(owner, O_CLOEXEC) != 0) std::perror("jail"), std::exit(125);
    *status = 125 << 8;
    first = fork();
    if (first < 0) std::perror("jail: fork"), std::exit(125);  // with -1 the handler below would kill everybody
    if (first == 0) {
        close(owner[1]);
        keep(owner[0], status);
        munmap(status, sizeof(int));
        return;
    }
    signal(SIGTERM, [](int) { kill(first, SIGKILL); });
    dup2(owner[1], 0);
    close_from(1);
    waitpid(first, nullptr, 0);
    if (WIFSIGNALED(*status)) {
        signal(WTERMSIG(*status), SIG_DFL);
        raise(WTERMSIG(*status));
    }
    _exit(WEXITSTATUS(*status));
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
