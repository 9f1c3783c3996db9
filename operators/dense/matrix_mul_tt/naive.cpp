/*! evo
[[launch]]
kernel = "matrix_mul_tt"
args = ["a", "b", "c", "m", "n", "k"]
*/

extern "C" void matrix_mul_tt(const T* a, const T* b, T* c, int m, int n, int k) {
    for (int i = 0; i < m; i++) {
        for (int j = 0; j < n; j++) {
            ACC sum = 0;
            for (int l = 0; l < k; l++) sum += load(a[(long long)l * m + i]) * load(b[(long long)j * k + l]);
            c[(long long)i * n + j] = store(sum);
        }
    }
}
