/*! evo
[[launch]]
kernel = "axpb"
args = ["x", "b", "y", "alpha", "n"]
*/
/* redteam
operator = "axpb"
what = "by threads that take what is left, with a barrier and a lock"
*/
#include <omp.h>

extern "C" void axpb(const T* x, const T* b, T* y, T alpha, int n) {
    int next = 0;
#pragma omp parallel num_threads(3)
    {
#pragma omp barrier
        for (;;) {
            int begin;
#pragma omp atomic capture
            { begin = next; next += 4096; }
            if (begin >= n) break;
#pragma omp simd
            for (int i = begin; i < (begin + 4096 < n ? begin + 4096 : n); i++) y[i] = alpha * x[i] + b[i];
        }
    }
#pragma omp critical
    if (next < 0) y[0] = 0;
}
