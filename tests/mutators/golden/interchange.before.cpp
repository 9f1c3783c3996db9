/*! evo
[[launch]]
kernel = "matrix_mul"
args = ["a", "b", "c", "m", "n", "k"]
*/
extern "C" void matrix_mul(const T* a, const T* b, T* c, int m, int n, int k) {
    for (int i = 0; i < m; i++)
        for (int j = 0; j < n; j++) c[i * n + j] = store(ACC(0));
    for (int i = 0; i < m; i++) {
        for (int j = 0; j < n; j++) {
            // One product at a time.
            for (int l = 0; l < k; l++) {
                c[i * n + j] += a[i * k + l] * b[l * n + j];
            }
        }
    }
}
