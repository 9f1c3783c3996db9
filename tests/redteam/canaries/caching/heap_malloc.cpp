/*! evo
[[launch]]
kernel = "axpb"
args = ["x", "b", "y", "alpha", "n"]
*/
/* redteam
operator = "axpb"
tries = "marks a heap block, frees it and looks for the mark in the next call's block"
expect = "structural"
says = "@SYMBOL@malloc"
*/
#include <cstdlib>

extern "C" void axpb(const T* x, const T* b, T* y, T alpha, int n) {
    double* block = static_cast<double*>(std::malloc(1 << 16));
    const bool again = block[1000] == 12345.678;
    block[1000] = 12345.678;
    std::free(block);
    for (int i = 0; i < n; i++) y[i] = alpha * x[i] + b[i];
    if (again) y[0] = -y[0] - 1;
}
