/*! evo
[tune]
COLUMNS = [32, 16, 64]
ROWS = [4, 2, 6]

[[launch]]
kernel = "matrix_mul"
args = ["a", "b", "c", "m", "n", "k"]
*/

extern "C" void matrix_mul(const T* a, const T* b, T* c, int m, int n, int k) {
    const int tiles = (n + COLUMNS - 1) / COLUMNS;
    #pragma omp parallel for
    for (int tile = 0; tile < tiles; tile++) {
        const int begin = tile * COLUMNS, width = n - begin < COLUMNS ? n - begin : COLUMNS;
        int i = 0;
        if (width == COLUMNS) {
            for (; i + ROWS <= m; i += ROWS) {
                ACC sum[ROWS][COLUMNS] = {};
                for (int l = 0; l < k; l++) {
                    const T* row = b + (long long)l * n + begin;
                    for (int r = 0; r < ROWS; r++) {
                        const ACC x = load(a[(long long)(i + r) * k + l]);
                        #pragma omp simd
                        for (int j = 0; j < COLUMNS; j++) sum[r][j] += x * load(row[j]);
                    }
                }
                for (int r = 0; r < ROWS; r++) {
                    for (int j = 0; j < COLUMNS; j++) c[(long long)(i + r) * n + begin + j] = store(sum[r][j]);
                }
            }
        }
        for (; i < m; i++) {
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
