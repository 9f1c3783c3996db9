// Runs one program under limits, in a session of its own, dying with its owner.
//
//   jail OWNER_PID CPU_SECONDS MEMORY_BYTES FILE_BYTES -- PROGRAM ARGUMENTS...
//
// A limit of 0 leaves that one as it is. Not covered: reading files, the network, processes that leave the session.
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

static void limit(decltype(RLIMIT_CPU) what, rlim_t value) {
    const rlimit both{value, value};
    if (setrlimit(what, &both) != 0) {
        std::perror("jail: setrlimit");
        std::exit(125);
    }
}

int main(int argc, char** argv) {
    if (argc < 7 || std::strcmp(argv[5], "--") != 0) {
        std::fputs("usage: jail OWNER_PID CPU_SECONDS MEMORY_BYTES FILE_BYTES -- PROGRAM ARGUMENTS...\n", stderr);
        return 125;
    }
    setsid();
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != std::atoi(argv[1])) return 125;  // the owner died before the line above took effect
    const auto value = [&](int i) { return static_cast<rlim_t>(std::strtoull(argv[i], nullptr, 10)); };
    limit(RLIMIT_CORE, 0);
    if (value(2)) limit(RLIMIT_CPU, value(2));
    if (value(3)) limit(RLIMIT_AS, value(3));
    if (value(4)) limit(RLIMIT_FSIZE, value(4));
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    execvp(argv[6], argv + 6);
    std::perror(argv[6]);
    return 125;
}
