/*! evo
[[launch]]
kernel = "axpb"
args = ["x", "b", "y", "alpha", "n"]
*/
/* redteam
operator = "axpb"
tries = "remembers through the number of threads that it sets"
expect = "caught"
says = "settings of OpenMP"
proof = "correct"
*/
#include <omp.h>

extern "C" void axpb(const T* x, const T* b, T* y, T alpha, int n) {
    const bool again = omp_get_max_threads() == 61;
    omp_set_num_threads(61);
    for (int i = 0; i < n; i++) y[i] = alpha * x[i] + b[i];
    if (again) y[0] = -y[0] - 1;
}
