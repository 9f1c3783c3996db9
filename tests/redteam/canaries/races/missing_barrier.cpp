/*! evo
[[launch]]
kernel = "axpb"
args = ["x", "b", "y", "alpha", "n"]
*/
/* redteam
operator = "axpb"
tries = "reads what the other thread has yet to write"
expect = "caught"
says = "@RACE@"
*/
#include <omp.h>

extern "C" void axpb(const T* x, const T* b, T* y, T alpha, int n) {
#pragma omp parallel num_threads(2)
    {
        const int me = omp_get_thread_num(), team = omp_get_num_threads();
        for (int i = me; i < n; i += team) y[i] = alpha * x[i];
        for (int i = (me + 1) % team; i < n; i += team) y[n - 1 - i] = y[n - 1 - i] + b[n - 1 - i];
    }
}
