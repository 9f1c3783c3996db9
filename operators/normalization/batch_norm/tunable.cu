/*! evo
[tune]
BLOCK_X = [32, 64, 128]
BLOCK_Y = [8, 2, 4]
PARTS = [64, 16, 32, 128]
ROWS = [4, 1, 2, 8]

[[buffer]]
name = "sums"
dtype = "ACC"
shape = ["PARTS", "cols"]

[[buffer]]
name = "squares"
dtype = "ACC"
shape = ["PARTS", "cols"]

[[launch]]
kernel = "add_up"
grid = ["ceil_div(cols, BLOCK_X)", "PARTS"]
block = ["BLOCK_X", "BLOCK_Y"]
args = ["x", "sums", "rows", "cols"]

[[launch]]
kernel = "deviations"
grid = ["ceil_div(cols, BLOCK_X)", "PARTS"]
block = ["BLOCK_X", "BLOCK_Y"]
args = ["x", "sums", "squares", "rows", "cols"]

[[launch]]
kernel = "batch_norm"
grid = ["ceil_div(cols, BLOCK_X)", "PARTS"]
block = ["BLOCK_X", "BLOCK_Y"]
args = ["x", "weight", "bias", "sums", "squares", "y", "eps", "rows", "cols"]
*/

// The rows are shared out to PARTS blocks; every one adds up the partial sums of all for itself. A warp reads
// neighbouring columns of ROWS rows at a time.
__device__ __forceinline__ ACC over_lanes(ACC value) {
    __shared__ ACC partial[BLOCK_Y][BLOCK_X];
    __syncthreads();  // an earlier call may still be read
    partial[threadIdx.y][threadIdx.x] = value;
    __syncthreads();
    ACC sum = 0;
    for (int lane = 0; lane < BLOCK_Y; lane++) sum += partial[lane][threadIdx.x];
    return sum;
}

__device__ __forceinline__ ACC over_parts(const ACC* parts, int c, int cols) {
    ACC sum = 0;
    for (int part = threadIdx.y; part < PARTS && c < cols; part += BLOCK_Y) sum += parts[(long long)part * cols + c];
    return over_lanes(sum);
}

extern "C" __global__ void __launch_bounds__(BLOCK_X * BLOCK_Y) add_up(const T* x, ACC* sums, int rows, int cols) {
    int c = blockIdx.x * BLOCK_X + threadIdx.x;
    ACC sum = 0;
    for (long long r = blockIdx.y * BLOCK_Y + threadIdx.y; r < rows && c < cols; r += PARTS * BLOCK_Y * ROWS)
#pragma unroll
        for (int e = 0; e < ROWS; e++)
            if (r + e * PARTS * BLOCK_Y < rows) sum += load(x[(r + e * PARTS * BLOCK_Y) * cols + c]);
    sum = over_lanes(sum);
    if (threadIdx.y == 0 && c < cols) sums[(long long)blockIdx.y * cols + c] = sum;
}

extern "C" __global__ void __launch_bounds__(BLOCK_X * BLOCK_Y) deviations(const T* x, const ACC* sums, ACC* squares,
                                             int rows, int cols) {
    int c = blockIdx.x * BLOCK_X + threadIdx.x;
    ACC mean = over_parts(sums, c, cols) / rows, sum = 0;
    for (long long r = blockIdx.y * BLOCK_Y + threadIdx.y; r < rows && c < cols; r += PARTS * BLOCK_Y * ROWS)
#pragma unroll
        for (int e = 0; e < ROWS; e++)
            if (r + e * PARTS * BLOCK_Y < rows) {
                ACC deviation = load(x[(r + e * PARTS * BLOCK_Y) * cols + c]) - mean;
                sum += deviation * deviation;
            }
    sum = over_lanes(sum);
    if (threadIdx.y == 0 && c < cols) squares[(long long)blockIdx.y * cols + c] = sum;
}

extern "C" __global__ void __launch_bounds__(BLOCK_X * BLOCK_Y) batch_norm(const T* x, const T* weight, const T* bias,
                                             const ACC* sums, const ACC* squares, T* y, ACC eps, int rows, int cols) {
    int c = blockIdx.x * BLOCK_X + threadIdx.x;
    ACC mean = over_parts(sums, c, cols) / rows, scale = rsqrtf(over_parts(squares, c, cols) / rows + eps);
    if (c >= cols) return;
    scale *= load(weight[c]);
    ACC shift = load(bias[c]);
    for (long long r = blockIdx.y * BLOCK_Y + threadIdx.y; r < rows; r += PARTS * BLOCK_Y)
        y[r * cols + c] = store((load(x[r * cols + c]) - mean) * scale + shift);
}
