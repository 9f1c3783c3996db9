/*! evo
[tune]
TILE_J = [64, 16, 32, 128, 256]

[[launch]]
kernel = "matrix_mul"
args = ["a", "b", "c", "m", "n", "k"]
*/
extern "C" void matrix_mul(const T* a, const T* b, T* c, int m, int n, int k) {
    for (int i = 0; i < m; i++) {
        for (int j0 = 0; j0 < n; j0 += TILE_J) {
            ACC sum_tile[TILE_J];
            for (int j = j0; j < (j0 + TILE_J < n ? j0 + TILE_J : n); j++) {
                sum_tile[j - j0] = 0;
            }
            for (int l = 0; l < k; l++) {
                for (int j = j0; j < (j0 + TILE_J < n ? j0 + TILE_J : n); j++) {
                    sum_tile[j - j0] += load(a[i * k + l]) * load(b[l * n + j]);
                }
            }
            for (int j = j0; j < (j0 + TILE_J < n ? j0 + TILE_J : n); j++) {
                c[i * n + j] = store(sum_tile[j - j0]);
            }
        }
    }
}
