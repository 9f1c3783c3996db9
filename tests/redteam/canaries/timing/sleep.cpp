/*! evo
[[launch]]
kernel = "axpb"
args = ["x", "b", "y", "alpha", "n"]
*/
/* redteam
operator = "axpb"
tries = "sleeps, to be measured as one who waits"
expect = "structural"
says = "@SYMBOL@usleep|unistd"
*/
#include <unistd.h>

extern "C" void axpb(const T* x, const T* b, T* y, T alpha, int n) {
    for (int i = 0; i < n; i++) y[i] = alpha * x[i] + b[i];
    usleep(100);
}
