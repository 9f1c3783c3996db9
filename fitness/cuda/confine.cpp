// Confines the process that loads it: for processes in Python, after they have loaded what they need.
#include "../native/confine.hpp"
#include <sys/prctl.h>

// Paths joined by `:`. From here on nothing else can be opened, no network reached, no other process touched.
// 3: Landlock and seccomp are both in place; 1 or 2: one of them; 0: neither.
extern "C" int evo_confine(const char* readable, const char* writable) {
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    const bool files = confine::restrict_files(confine::split(readable, ':'), confine::split(writable, ':'));
    confine::Filter filter;
    filter.rule(SECCOMP_RET_ERRNO | EPERM,
                {SYS_execve, SYS_execveat, SYS_socket, SYS_ptrace, SYS_process_vm_readv, SYS_process_vm_writev, SYS_mount,
                 SYS_unshare, SYS_setns, SYS_bpf, SYS_keyctl, SYS_add_key, SYS_perf_event_open, SYS_userfaultfd});
    return 2 * files + filter.install(SECCOMP_RET_ALLOW);
}
