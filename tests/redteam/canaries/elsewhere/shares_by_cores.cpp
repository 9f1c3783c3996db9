/*! evo
[[launch]]
kernel = "axpb"
args = ["x", "b", "y", "alpha", "n", "cpu_count"]
*/
/* redteam
operator = "axpb"
tries = "deals its work out to as many threads as there are cores, and gets fewer where a program says so"
expect = "caught"
says = "wrong result"
*/
#include <omp.h>

extern "C" void axpb(const T* x, const T* b, T* y, T alpha, int n, int cores) {
#pragma omp parallel
    for (int i = omp_get_thread_num(); i < n; i += cores) y[i] = alpha * x[i] + b[i];
}
