/*! evo
[[launch]]
kernel = "upper_triangular_matrix_mul"
args = ["a", "b", "c", "n"]
*/

extern "C" void upper_triangular_matrix_mul(const T* a, const T* b, T* c, int n) {
    for (int i = 0; i < n; i++) {
        for (int j = 0; j < n; j++) {
            ACC sum = 0;
            for (int l = i; l < j + 1; l++) sum += load(a[(long long)i * n + l]) * load(b[(long long)l * n + j]);
            c[(long long)i * n + j] = store(sum);
        }
    }
}
