/*! evo
[[launch]]
kernel = "axpb"
args = ["x", "b", "y", "alpha", "n"]
*/
/* redteam
operator = "axpb"
what = "with AVX2 intrinsics and a tail of its own"
machine = "x86_64"
*/
#include <immintrin.h>

extern "C" void axpb(const T* x, const T* b, T* y, T alpha, int n) {
    const __m256 factor = _mm256_set1_ps(alpha);
    int i = 0;
    for (; i + 8 <= n; i += 8) _mm256_storeu_ps(y + i, _mm256_fmadd_ps(factor, _mm256_loadu_ps(x + i), _mm256_loadu_ps(b + i)));
    for (; i < n; i++) y[i] = alpha * x[i] + b[i];
}
