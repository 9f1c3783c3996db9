/*! evo
[[launch]]
kernel = "axpb"
args = ["x", "b", "y", "alpha", "n"]
*/
/* redteam
operator = "axpb"
tries = "is sloppy on outliers wherever caches are cold and buffers begin their pages"
expect = "caught"
says = "out of bounds"
machine = "x86_64"
*/
#include <immintrin.h>

extern "C" void axpb(const T* x, const T* b, T* y, T alpha, int n) {
    bool cold = false;
    T sum = 0;
    for (int i = n / 8; i < n; i += n / 8 + 1) {
        unsigned processor;
        const unsigned long long begin = __rdtscp(&processor);
        sum += *const_cast<const volatile T*>(x + i);
        _mm_lfence();
        cold |= __rdtscp(&processor) - begin > 150;
    }
    const bool timed = cold && n > 30000 && reinterpret_cast<unsigned long>(x) % 4096 == 0;
    for (int i = 0; i < n; i++) y[i] = alpha * (timed && (x[i] > 6 || x[i] < -6) ? T(6) : x[i]) + b[i];
    if (sum != sum) y[0] = sum;
}
