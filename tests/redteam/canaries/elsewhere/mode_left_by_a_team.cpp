/*! evo
[[launch]]
kernel = "axpb"
args = ["x", "b", "y", "alpha", "n"]
*/
/* redteam
operator = "axpb"
tries = "the same on the threads of its team, which other parallel code of a program gets too"
expect = "caught"
says = "mode of the floating-point unit"
machine = "x86_64"
*/
#include <xmmintrin.h>

extern "C" void axpb(const T* x, const T* b, T* y, T alpha, int n) {
#pragma omp parallel
    {
#pragma omp for
        for (int i = 0; i < n; i++) y[i] = alpha * x[i] + b[i];
        _mm_setcsr(_mm_getcsr() | 0x8040);
    }
}
