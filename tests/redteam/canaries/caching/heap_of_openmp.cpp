/*! evo
[[launch]]
kernel = "axpb"
args = ["x", "b", "y", "alpha", "n"]
*/
/* redteam
operator = "axpb"
tries = "the same through OpenMP's allocator"
expect = "structural"
says = "@SYMBOL@omp_"
*/
#include <omp.h>

extern "C" void axpb(const T* x, const T* b, T* y, T alpha, int n) {
    double* block = static_cast<double*>(omp_alloc(1 << 16, omp_default_mem_alloc));
    const bool again = block[1000] == 12345.678;
    block[1000] = 12345.678;
    omp_free(block, omp_default_mem_alloc);
    for (int i = 0; i < n; i++) y[i] = alpha * x[i] + b[i];
    if (again) y[0] = -y[0] - 1;
}
