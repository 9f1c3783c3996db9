/*! evo
[tune]
BLOCK_X = [64, 32, 128]
BLOCK_Y = [4, 2, 8]
ROWS = [8, 1, 4, 16]

[[launch]]
kernel = "rope"
grid = ["ceil_div(pairs, BLOCK_X)", "min(ceil_div(rows, BLOCK_Y * ROWS), 65535)"]
block = ["BLOCK_X", "BLOCK_Y"]
args = ["x", "y", "base", "rows", "pairs"]
*/

// A thread turns pairs of ROWS rows: their frequency is computed once, and all are read before one is written.
extern "C" __global__ void __launch_bounds__(BLOCK_X * BLOCK_Y) rope(const T* x, T* y, ACC base, int rows, int pairs) {
    int c = blockIdx.x * BLOCK_X + threadIdx.x;
    if (c >= pairs) return;
    ACC frequency = powf(base, -ACC(c) / pairs);
    for (int first = blockIdx.y * BLOCK_Y * ROWS + threadIdx.y; first < rows; first += gridDim.y * BLOCK_Y * ROWS) {
        ACC even[ROWS], odd[ROWS];
#pragma unroll
        for (int e = 0; e < ROWS; e++) {
            int r = first + e * BLOCK_Y;
            long long at = 2 * ((long long)r * pairs + c);
            even[e] = r < rows ? load(x[at]) : ACC(0), odd[e] = r < rows ? load(x[at + 1]) : ACC(0);
        }
#pragma unroll
        for (int e = 0; e < ROWS; e++) {
            int r = first + e * BLOCK_Y;
            if (r >= rows) break;
            long long at = 2 * ((long long)r * pairs + c);
            ACC sine, cosine;
            sincosf(r * frequency, &sine, &cosine);
            y[at] = store(even[e] * cosine - odd[e] * sine);
            y[at + 1] = store(even[e] * sine + odd[e] * cosine);
        }
    }
}
