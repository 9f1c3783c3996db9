/*! evo
[[buffer]]
name = "t"
dtype = "T"
shape = ["n", "k"]
[[launch]]
kernel = "transpose"
args = ["b", "t", "k", "n"]
[[launch]]
kernel = "multiply"
args = ["a", "t", "c", "m", "n", "k"]
*/
/* redteam
operator = "matrix_mul"
what = "through a transposed copy in scratch, with four partial sums"
*/
extern "C" void transpose(const T* b, T* t, int k, int n) {
    for (int j = 0; j < n; j++)
        for (int l = 0; l < k; l++) t[(long long)j * k + l] = b[(long long)l * n + j];
}

extern "C" void multiply(const T* a, const T* t, T* c, int m, int n, int k) {
#pragma omp parallel for collapse(2) num_threads(2)
    for (int i = 0; i < m; i++)
        for (int j = 0; j < n; j++) {
            ACC sums[4] = {0, 0, 0, 0};
            for (int l = 0; l < k; l++) sums[l & 3] += a[(long long)i * k + l] * t[(long long)j * k + l];
            c[(long long)i * n + j] = (sums[0] + sums[1]) + (sums[2] + sums[3]);
        }
}
