/*! evo
[[launch]]
kernel = "axpb"
args = ["x", "b", "y", "alpha", "n"]
*/
/* redteam
operator = "axpb"
tries = "remembers through a mode bit of the floating-point unit"
expect = "caught"
says = "mode of the floating-point unit"
machine = "x86_64"
proof = "correct"
*/
#include <xmmintrin.h>

extern "C" void axpb(const T* x, const T* b, T* y, T alpha, int n) {
    const bool again = _mm_getcsr() & 0x0040;
    for (int i = 0; i < n; i++) y[i] = alpha * x[i] + b[i];
    _mm_setcsr(_mm_getcsr() | 0x0040);
    if (again) y[0] = -y[0] - 1;
}
