/*! evo
[tune]
BLOCK_X = [32, 16, 64]
BLOCK_Y = [8, 2, 4]
EACH = [4, 1, 2, 8]
PART = [8, 4, 16]

[[launch]]
kernel = "conv_2d"
grid = ["ceil_div(width - wide + 1, BLOCK_X)", "ceil_div(height - tall + 1, BLOCK_Y * EACH)"]
block = ["BLOCK_X", "BLOCK_Y"]
args = ["x", "w", "y", "height", "width", "tall", "wide"]
*/

// PART x PART taps at a time, with the part of the image that they meet, in shared memory; EACH results per thread, one
// below the other.
extern "C" __global__ void __launch_bounds__(BLOCK_X * BLOCK_Y) conv_2d(const T* x, const T* w, T* y, int height,
                                             int width, int tall, int wide) {
    constexpr int ROWS = BLOCK_Y * EACH, THREADS = BLOCK_X * BLOCK_Y, ACROSS = BLOCK_X + PART - 1;
    __shared__ ACC image[ROWS + PART - 1][ACROSS], filter[PART][PART];
    int top = blockIdx.y * ROWS, left = blockIdx.x * BLOCK_X, thread = threadIdx.y * BLOCK_X + threadIdx.x;
    ACC sums[EACH] = {};
    for (int down = 0; down < tall; down += PART)
        for (int over = 0; over < wide; over += PART) {
            int rows = tall - down < PART ? tall - down : PART, cols = wide - over < PART ? wide - over : PART;
            for (int t = thread; t < (ROWS + PART - 1) * ACROSS; t += THREADS) {
                int a = t / ACROSS, b = t % ACROSS, i = top + down + a, j = left + over + b;
                image[a][b] = i < height && j < width ? load(x[(long long)i * width + j]) : ACC(0);
            }
            for (int t = thread; t < rows * cols; t += THREADS)
                filter[t / cols][t % cols] = load(w[(down + t / cols) * wide + over + t % cols]);
            __syncthreads();
            for (int a = 0; a < rows; a++)
                for (int b = 0; b < cols; b++) {
                    ACC weight = filter[a][b];
#pragma unroll
                    for (int e = 0; e < EACH; e++)
                        sums[e] += image[e * BLOCK_Y + threadIdx.y + a][threadIdx.x + b] * weight;
                }
            __syncthreads();
        }
    int j = left + threadIdx.x;
#pragma unroll
    for (int e = 0; e < EACH; e++) {
        int i = top + e * BLOCK_Y + threadIdx.y;
        if (i < height - tall + 1 && j < width - wide + 1) y[(long long)i * (width - wide + 1) + j] = store(sums[e]);
    }
}
