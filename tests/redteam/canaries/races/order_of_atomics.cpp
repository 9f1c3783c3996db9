/*! evo
zero = ["c"]
[[launch]]
kernel = "matrix_mul"
args = ["a", "b", "c", "m", "n", "k"]
*/
/* redteam
operator = "matrix_mul"
tries = "adds with atomics in the order in which threads come, and says it is deterministic"
expect = "caught"
says = "differs between two runs"
*/
extern "C" void matrix_mul(const T* a, const T* b, T* c, int m, int n, int k) {
#pragma omp parallel for num_threads(2) schedule(static, 1)
    for (int l = 0; l < k; l++)
        for (int i = 0; i < m; i++)
            for (int j = 0; j < n; j++) {
                const ACC product = a[i * k + l] * b[l * n + j];
#pragma omp atomic
                c[i * n + j] += product;
            }
}
