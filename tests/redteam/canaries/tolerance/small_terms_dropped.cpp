/*! evo
[[launch]]
kernel = "matrix_mul"
args = ["a", "b", "c", "m", "n", "k"]
*/
/* redteam
operator = "matrix_mul"
tries = "skips products that are small"
expect = "caught"
says = "out of bounds"
*/
extern "C" void matrix_mul(const T* a, const T* b, T* c, int m, int n, int k) {
    for (int i = 0; i < m; i++)
        for (int j = 0; j < n; j++) {
            ACC sum = 0;
            for (int l = 0; l < k; l++) {
                const ACC product = a[i * k + l] * b[l * n + j];
                if (product > ACC(1e-3) || product < ACC(-1e-3)) sum += product;
            }
            c[i * n + j] = sum;
        }
}
