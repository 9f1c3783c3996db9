/*! evo
zero = ["c"]
[[launch]]
kernel = "matrix_mul"
args = ["a", "b", "c", "m", "n", "k"]
*/
/* redteam
operator = "matrix_mul"
tries = "adds from two threads without a lock"
expect = "caught"
says = "@RACE@"
*/
extern "C" void matrix_mul(const T* a, const T* b, T* c, int m, int n, int k) {
#pragma omp parallel for num_threads(2) schedule(static, 1)
    for (int l = 0; l < k; l++)
        for (int i = 0; i < m; i++)
            for (int j = 0; j < n; j++) {
                volatile ACC& sum = c[i * n + j];
                sum = sum + a[i * k + l] * b[l * n + j];
            }
}
