/*! evo
[[launch]]
kernel = "matrix_mul"
args = ["a", "b", "c", "m", "n", "k"]
*/
/* redteam
operator = "matrix_mul"
what = "in blocks, summing into the output, outer products innermost"
*/
extern "C" void matrix_mul(const T* a, const T* b, T* c, int m, int n, int k) {
    for (long long i = 0; i < (long long)m * n; i++) c[i] = 0;
    for (int l0 = 0; l0 < k; l0 += 32)
        for (int i = 0; i < m; i++)
            for (int l = l0; l < (l0 + 32 < k ? l0 + 32 : k); l++) {
                const T factor = a[(long long)i * k + l];
#pragma GCC ivdep
                for (int j = 0; j < n; j++) c[(long long)i * n + j] += factor * b[(long long)l * n + j];
            }
}
