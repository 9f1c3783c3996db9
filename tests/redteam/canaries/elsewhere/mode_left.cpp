/*! evo
[[launch]]
kernel = "axpb"
args = ["x", "b", "y", "alpha", "n"]
*/
/* redteam
operator = "axpb"
tries = "leaves subnormal numbers off for the program that calls it, whose later results then lack them"
expect = "caught"
says = "mode of the floating-point unit"
machine = "x86_64"
*/
#include <xmmintrin.h>

extern "C" void axpb(const T* x, const T* b, T* y, T alpha, int n) {
    for (int i = 0; i < n; i++) y[i] = alpha * x[i] + b[i];
    _mm_setcsr(_mm_getcsr() | 0x8040);
}
