/*! evo
[[launch]]
kernel = "matrix_mul"
args = ["a", "b", "c", "m", "n", "k"]
*/
/* redteam
operator = "matrix_mul"
tries = "takes factors below 2^-30 for zero, which are smaller than most and not subnormal"
expect = "caught"
says = "out of bounds|rms is"
*/
extern "C" void matrix_mul(const T* a, const T* b, T* c, int m, int n, int k) {
    for (int i = 0; i < m; i++)
        for (int j = 0; j < n; j++) {
            ACC sum = 0;
            for (int l = 0; l < k; l++) {
                const ACC x = a[(long long)i * k + l], size = x < 0 ? -x : x;
                sum += (size < ACC(9.3e-10) ? 0 : x) * b[(long long)l * n + j];
            }
            c[(long long)i * n + j] = sum;
        }
}
