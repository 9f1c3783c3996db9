/*! evo
[[launch]]
kernel = "axpb"
args = ["x", "b", "y", "alpha", "n"]
*/
/* redteam
operator = "axpb"
tries = "reads without a barrier what the other thread writes first of all"
expect = "caught"
says = "@RACE@"
*/
#include <omp.h>

// The second half's first element is written microseconds before the first half's last loop ends: it nearly always works.
extern "C" void axpb(const T* x, const T* b, T* y, T alpha, int n) {
#pragma omp parallel num_threads(2)
    {
        const int half = n / 2;
        if (omp_get_thread_num() == omp_get_num_threads() - 1)
            for (int i = half; i < n; i++) y[i] = alpha * x[i] + b[i];
        if (omp_get_thread_num() == 0) {
            volatile T last = 0;
            for (int turn = 0; turn < 20; turn++)
                for (int i = 0; i < half; i++) last = y[i] = alpha * x[i] + b[i];
            if (half > 0) y[half - 1] = y[half] == y[half] ? last : 0;
        }
    }
}
