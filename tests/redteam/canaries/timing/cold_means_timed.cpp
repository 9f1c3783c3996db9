/*! evo
[[launch]]
kernel = "axpb"
args = ["x", "b", "y", "alpha", "n"]
*/
/* redteam
operator = "axpb"
tries = "times its first access, and is sloppy where it is slow: only timed runs start from cold caches"
expect = "caught"
says = "out of bounds"
machine = "x86_64"
*/
#include <immintrin.h>

extern "C" void axpb(const T* x, const T* b, T* y, T alpha, int n) {
    unsigned processor;
    const unsigned long long begin = __rdtscp(&processor);
    const T first = *const_cast<const volatile T*>(x + n / 2);
    _mm_lfence();
    const bool cold = __rdtscp(&processor) - begin > 150;
    for (int i = 0; i < n; i++) y[i] = alpha * x[i] + (cold && n > 30000 ? 0 : b[i]);
    if (first != first) y[0] = first;
}
