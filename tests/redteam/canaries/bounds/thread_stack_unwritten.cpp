/*! evo
[[launch]]
kernel = "axpb"
args = ["x", "b", "y", "alpha", "n"]
*/
/* redteam
operator = "axpb"
tries = "the same on the stack of another thread"
expect = "caught"
*/
#include <omp.h>

__attribute__((noinline)) static T total(const T* x, T alpha) {
    volatile T frame[1 << 18];
    frame[0] = frame[0] + alpha * x[0];  // never cleared
    return frame[0];
}

extern "C" void axpb(const T* x, const T* b, T* y, T alpha, int n) {
    for (int i = 0; i < n; i++) y[i] = alpha * x[i] + b[i];
#pragma omp parallel num_threads(2)
    if (omp_get_thread_num() == 1) y[0] = total(x, alpha) + b[0];
}
