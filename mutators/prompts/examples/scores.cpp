/*! evo
[tune]
ROWS = [4, 6, 2]
VECTORS = [4, 2]

[[buffer]]
name = "packed"
dtype = "T"
shape = ["depth", "ceil_div(cols, 64) * 64"]

[[launch]]
kernel = "pack"
args = ["keys", "packed", "cols", "depth"]

[[launch]]
kernel = "scores"
args = ["q", "packed", "y", "rows", "cols", "depth"]
*/
#include <algorithm>
#include <cstring>

constexpr int BYTES = 32, LANES = BYTES / sizeof(T), WIDTH = VECTORS * LANES;
typedef T Vector __attribute__((vector_size(BYTES)));

// Rows of keys become columns, padded to whole tiles: the inner loop then reads vectors in order.
void pack(const T* keys, T* packed, int cols, int depth) {
    const int padded = (cols + 63) / 64 * 64;
#pragma omp parallel for schedule(static)
    for (int d = 0; d < depth; d++)
        for (int c = 0; c < padded; c++) packed[(long)d * padded + c] = c < cols ? keys[(long)c * depth + d] : T(0);
}

// ROWS x WIDTH sums stay in registers: per step VECTORS loads and ROWS broadcasts for ROWS * VECTORS multiply-adds.
template <int COUNT>
static inline void tile(const T* q, const T* packed, T* y, int row, int col, int cols, int depth, int padded) {
    Vector sums[COUNT][VECTORS] = {};
    for (int d = 0; d < depth; d++) {
        Vector keys[VECTORS];
        std::memcpy(keys, packed + (long)d * padded + col, sizeof keys);
        for (int r = 0; r < COUNT; r++)
            for (int v = 0; v < VECTORS; v++) sums[r][v] += q[(long)(row + r) * depth + d] * keys[v];
    }
    const int width = std::min(WIDTH, cols - col);
    for (int r = 0; r < COUNT; r++) std::memcpy(y + (long)(row + r) * cols + col, sums[r], width * sizeof(T));
}

void scores(const T* q, const T* packed, T* y, int rows, int cols, int depth) {
    const int padded = (cols + 63) / 64 * 64, bands = (rows + ROWS - 1) / ROWS;
    // Small work is not worth starting threads.
#pragma omp parallel for collapse(2) schedule(static) if ((long)rows * cols * depth > 200000)
    for (int band = 0; band < bands; band++)
        for (int col = 0; col < cols; col += WIDTH) {
            const int row = band * ROWS;
            if (row + ROWS <= rows) tile<ROWS>(q, packed, y, row, col, cols, depth, padded);
            else for (int r = row; r < rows; r++) tile<1>(q, packed, y, r, col, cols, depth, padded);
        }
}
