/*! evo
[tune]
COLUMNS = [4, 2]
[[launch]]
kernel = "matrix_mul"
args = ["a", "b", "c", "m", "n", "k"]
*/

extern "C" void matrix_mul(const T* a, const T* b, T* c, int m, int n, int k) {
    const int tiles = (n + COLUMNS - 1) / COLUMNS;
    #pragma omp parallel for
    for (int tile = 0; tile < tiles; tile++) {
        const int begin = tile * COLUMNS, width = n - begin < COLUMNS ? n - begin : COLUMNS;
        for (int i = 0; i < m; i++) {
            ACC sum[COLUMNS] = {};
            for (int l = 0; l < k; l++) {
                const ACC x = load(a[(long long)i * k + l]);
                const T* row = b + (long long)l * n + begin;
                for (int j = 0; j < width; j++) sum[j] += x * load(row[j]);
            }
            for (int j = 0; j < width; j++) c[(long long)i * n + begin + j] = store(sum[j]);
        }
    }
}
