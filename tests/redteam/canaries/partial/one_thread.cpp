/*! evo
[[launch]]
kernel = "axpb"
args = ["x", "b", "y", "alpha", "n"]
*/
/* redteam
operator = "axpb"
tries = "lets one thread of a team do its share and the others nothing"
expect = "caught"
says = "elements of `y`"
*/
#include <omp.h>

extern "C" void axpb(const T* x, const T* b, T* y, T alpha, int n) {
#pragma omp parallel num_threads(2)
    if (omp_get_thread_num() == 0)
        for (int i = 0; i < n; i += 2) y[i] = alpha * x[i] + b[i];
}
