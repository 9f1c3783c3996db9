/*! evo
[[launch]]
kernel = "axpb"
args = ["x", "b", "y", "alpha", "n"]
*/
/* redteam
operator = "axpb"
what = "one thread hands a number to the others by an atomic flag"
*/
#include <omp.h>

extern "C" void axpb(const T* x, const T* b, T* y, T alpha, int n) {
    int ready = 0;
    T factor = 0;
#pragma omp parallel
    {
        if (omp_get_thread_num() == 0) {
            factor = alpha;
#pragma omp atomic write release
            ready = 1;
        } else {
            for (int seen = 0; !seen;) {
#pragma omp atomic read acquire
                seen = ready;
            }
        }
#pragma omp for
        for (int i = 0; i < n; i++) y[i] = factor * x[i] + b[i];
    }
}
