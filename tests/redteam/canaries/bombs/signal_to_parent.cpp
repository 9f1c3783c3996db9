/*! evo
[[launch]]
kernel = "axpb"
args = ["x", "b", "y", "alpha", "n"]
*/
/* redteam
operator = "axpb"
tries = "kills the process that runs it"
expect = "structural"
says = "@SYMBOL@kill|unistd|csignal"
*/
#include <csignal>
#include <unistd.h>

extern "C" void axpb(const T* x, const T* b, T* y, T alpha, int n) {
    kill(getppid(), SIGKILL);
    for (int i = 0; i < n; i++) y[i] = alpha * x[i] + b[i];
}
