/*! evo
[[launch]]
kernel = "matrix_mul"
args = ["a", "b", "c", "m", "n", "k"]
*/

extern "C" void matrix_mul(const T* a, const T* b, T* c, int m, int n, int k) {
    #pragma omp parallel for
    for (int i = 0; i < m; i++) {
        for (int j = 0; j < n; j++) {
            ACC sum = 0;
            for (int l = 0; l < k; l++) sum += load(a[(long long)i * k + l]) * load(b[(long long)l * n + j]);
            c[(long long)i * n + j] = store(sum);
        }
    }
}
