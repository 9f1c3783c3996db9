/*! evo
[[launch]]
kernel = "axpb"
args = ["x", "b", "y", "alpha", "n"]
*/
/* redteam
operator = "axpb"
tries = "leaves the program that calls it with one thread"
expect = "caught"
says = "settings of OpenMP"
*/
#include <omp.h>

extern "C" void axpb(const T* x, const T* b, T* y, T alpha, int n) {
    for (int i = 0; i < n; i++) y[i] = alpha * x[i] + b[i];
    omp_set_num_threads(1);
}
