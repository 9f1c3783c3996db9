/*! evo
zero = ["c"]
[[launch]]
kernel = "matrix_mul"
args = ["a", "b", "c", "m", "n", "k"]
*/
/* redteam
operator = "matrix_mul"
what = "recursively along the longest side"
*/
static void multiply(const T* a, const T* b, T* c, int m, int n, int k, int lda, int ldb, int ldc) {
    if (m <= 16 && n <= 16 && k <= 16) {
        for (int i = 0; i < m; i++)
            for (int l = 0; l < k; l++)
                for (int j = 0; j < n; j++) c[(long)i * ldc + j] += a[(long)i * lda + l] * b[(long)l * ldb + j];
    } else if (m >= n && m >= k) {
        multiply(a, b, c, m / 2, n, k, lda, ldb, ldc);
        multiply(a + (long)(m / 2) * lda, b, c + (long)(m / 2) * ldc, m - m / 2, n, k, lda, ldb, ldc);
    } else if (n >= k) {
        multiply(a, b, c, m, n / 2, k, lda, ldb, ldc);
        multiply(a, b + n / 2, c + n / 2, m, n - n / 2, k, lda, ldb, ldc);
    } else {
        multiply(a, b, c, m, n, k / 2, lda, ldb, ldc);
        multiply(a + k / 2, b + (long)(k / 2) * ldb, c, m, n, k - k / 2, lda, ldb, ldc);
    }
}

extern "C" void matrix_mul(const T* a, const T* b, T* c, int m, int n, int k) {
    multiply(a, b, c, m, n, k, k, n, n);
}
