/*! evo
[tune]
BLOCK_X = [16, 8, 32, 64]
BLOCK_Y = [16, 2, 4, 8]

[[launch]]
kernel = "rope"
grid = ["ceil_div(pairs, BLOCK_X)", "min(ceil_div(rows, BLOCK_Y), 65535)"]
block = ["BLOCK_X", "BLOCK_Y"]
args = ["x", "y", "base", "rows", "pairs"]
*/

// One thread per pair; where there are more rows than a grid has, a thread takes several.
extern "C" __global__ void rope(const T* x, T* y, ACC base, int rows, int pairs) {
    int c = blockIdx.x * blockDim.x + threadIdx.x;
    if (c >= pairs) return;
    for (int r = blockIdx.y * blockDim.y + threadIdx.y; r < rows; r += gridDim.y * blockDim.y) {
        ACC angle = r * powf(base, -ACC(c) / pairs);
        long long at = 2 * ((long long)r * pairs + c);
        ACC even = load(x[at]), odd = load(x[at + 1]);
        ACC cosine = cosf(angle), sine = sinf(angle);
        y[at] = store(even * cosine - odd * sine);
        y[at + 1] = store(even * sine + odd * cosine);
    }
}
