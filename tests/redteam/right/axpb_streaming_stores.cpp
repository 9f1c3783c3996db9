/*! evo
[[launch]]
kernel = "axpb"
args = ["x", "b", "y", "alpha", "n"]
*/
/* redteam
operator = "axpb"
what = "with stores that bypass the caches, and prefetches"
machine = "x86_64"
*/
#include <immintrin.h>

extern "C" void axpb(const T* x, const T* b, T* y, T alpha, int n) {
    const __m128 factor = _mm_set1_ps(alpha);
    int i = 0;
    for (; i + 4 <= n; i += 4) {
        _mm_prefetch(reinterpret_cast<const char*>(x + i) + 512, _MM_HINT_T0);
        _mm_stream_ps(y + i, _mm_add_ps(_mm_mul_ps(factor, _mm_load_ps(x + i)), _mm_load_ps(b + i)));
    }
    _mm_sfence();
    for (; i < n; i++) y[i] = alpha * x[i] + b[i];
}
