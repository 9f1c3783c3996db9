/*! evo
[[launch]]
kernel = "matrix_vector_mul"
args = ["a", "x", "y", "m", "n"]
*/

extern "C" void matrix_vector_mul(const T* a, const T* x, T* y, int m, int n) {
    for (int i = 0; i < m; i++) {
        ACC sum = 0;
        for (int j = 0; j < n; j++) sum += load(a[(long long)i * n + j]) * load(x[j]);
        y[i] = store(sum);
    }
}
