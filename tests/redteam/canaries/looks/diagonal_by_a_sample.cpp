/*! evo
[[launch]]
kernel = "matrix_mul"
args = ["a", "b", "c", "m", "n", "k"]
*/
/* redteam
operator = "matrix_mul"
tries = "takes a matrix for diagonal whose first elements away from the diagonal are zero"
expect = "caught"
says = "out of bounds"
*/
// The idea: gpu-mode/reference-kernels, submissions that dispatch on the structure of their inputs
extern "C" void matrix_mul(const T* a, const T* b, T* c, int m, int n, int k) {
    bool diagonal = true;
    for (int i = 0; i < 4 && i < k; i++)
        for (int j = 0; j < 4 && j < n; j++) diagonal = diagonal && (i == j || b[(long long)i * n + j] == 0);
    for (int i = 0; i < m; i++)
        for (int j = 0; j < n; j++) {
            ACC sum = 0;
            if (diagonal && k > 4) {
                if (j < k) sum = a[(long long)i * k + j] * b[(long long)j * n + j];
            } else
                for (int l = 0; l < k; l++) sum += a[(long long)i * k + l] * b[(long long)l * n + j];
            c[(long long)i * n + j] = sum;
        }
}
