// Runs one program under limits, in a session of its own, dying with its owner.
//
//   jail OWNER_PID CPU_SECONDS MEMORY_BYTES FILE_BYTES READABLE WRITABLE -- PROGRAM ARGUMENTS...
//
// A limit of 0 leaves that one as it is. READABLE and WRITABLE are paths joined by `:`; with READABLE = `*` files stay
// as they are, otherwise everything else is out of reach (Landlock) and so is the network.
#include "confine.hpp"
#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <sys/prctl.h>
#include <sys/resource.h>

constexpr rlim_t STACK_BYTES = 8 << 20;

static void limit(decltype(RLIMIT_CPU) what, rlim_t value) {
    const rlimit both{value, value};
    if (setrlimit(what, &both) != 0) {
        std::perror("jail: setrlimit");
        std::exit(125);
    }
}

int main(int argc, char** argv) {
    if (argc < 9 || std::strcmp(argv[7], "--") != 0) {
        std::fputs("usage: jail OWNER_PID CPU_SECONDS MEMORY_BYTES FILE_BYTES READABLE WRITABLE -- PROGRAM...\n", stderr);
        return 125;
    }
    setsid();
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
    if (std::strcmp(argv[5], "*") != 0) {
        confine::restrict_files(confine::split(argv[5], ':'), confine::split(argv[6], ':'));
        confine::forbid_network_and_others();
    }
    execvp(argv[8], argv + 8);
    std::perror(argv[8]);
    return 125;
}
