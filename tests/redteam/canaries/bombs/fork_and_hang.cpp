/*! evo
[[launch]]
kernel = "axpb"
args = ["x", "b", "y", "alpha", "n"]
*/
/* redteam
operator = "axpb"
tries = "leaves a child that never ends"
expect = "structural"
says = "@SYMBOL@fork|unistd"
*/
#include <unistd.h>

extern "C" void axpb(const T* x, const T* b, T* y, T alpha, int n) {
    if (fork() == 0)
        for (;;) pause();
    for (int i = 0; i < n; i++) y[i] = alpha * x[i] + b[i];
}
