/*! evo
[[launch]]
kernel = "batched_matrix_mul"
args = ["a", "b", "c", "batch", "m", "n", "k"]
*/

extern "C" void batched_matrix_mul(const T* a, const T* b, T* c, int batch, int m, int n, int k) {
    for (int s = 0; s < batch; s++) {
        for (int i = 0; i < m; i++) {
            long long row = (long long)s * m + i;
            for (int j = 0; j < n; j++) {
                ACC sum = 0;
                for (int l = 0; l < k; l++) sum += load(a[row * k + l]) * load(b[((long long)s * k + l) * n + j]);
                c[row * n + j] = store(sum);
            }
        }
    }
}
