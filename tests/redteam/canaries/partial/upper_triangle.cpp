/*! evo
[[launch]]
kernel = "matrix_mul"
args = ["a", "b", "c", "m", "n", "k"]
*/
/* redteam
operator = "matrix_mul"
tries = "computes the upper triangle of a product and mirrors it"
expect = "caught"
says = "elements of `c`"
*/
extern "C" void matrix_mul(const T* a, const T* b, T* c, int m, int n, int k) {
    for (int i = 0; i < m; i++)
        for (int j = 0; j < n; j++) {
            ACC sum = 0;
            if (i <= j || j >= m || i >= n)
                for (int l = 0; l < k; l++) sum += a[i * k + l] * b[l * n + j];
            else
                sum = c[j * n + i];
            c[i * n + j] = sum;
        }
}
