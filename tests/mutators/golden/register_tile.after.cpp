/*! evo
[tune]
TILE_I = [4, 1, 2, 6, 8]
TILE_J = [32, 8, 16, 64]

[[launch]]
kernel = "matrix_mul"
args = ["a", "b", "c", "m", "n", "k"]
*/
extern "C" void matrix_mul(const T* a, const T* b, T* c, int m, int n, int k) {
    for (int i0 = 0; i0 < m; i0 += TILE_I) {
        for (int j0 = 0; j0 < n; j0 += TILE_J) {
            if (i0 + TILE_I <= m && j0 + TILE_J <= n) {
                ACC sum_tile[TILE_I][TILE_J];
                for (int i = i0; i < i0 + TILE_I; i++) {
                    for (int j = j0; j < j0 + TILE_J; j++) {
                        sum_tile[i - i0][j - j0] = 0;
                    }
                }
                for (int l = 0; l < k; l++) {
                    for (int i = i0; i < i0 + TILE_I; i++) {
                        for (int j = j0; j < j0 + TILE_J; j++) {
                            sum_tile[i - i0][j - j0] += load(a[i * k + l]) * load(b[l * n + j]);
                        }
                    }
                }
                for (int i = i0; i < i0 + TILE_I; i++) {
                    for (int j = j0; j < j0 + TILE_J; j++) {
                        c[i * n + j] = store(sum_tile[i - i0][j - j0]);
                    }
                }
            } else {
                for (int i = i0; i < (i0 + TILE_I < m ? i0 + TILE_I : m); i++) {
                    for (int j = j0; j < (j0 + TILE_J < n ? j0 + TILE_J : n); j++) {
                        ACC sum = 0;
                        for (int l = 0; l < k; l++) sum += load(a[i * k + l]) * load(b[l * n + j]);
                        c[i * n + j] = store(sum);
                    }
                }
            }
        }
    }
}
