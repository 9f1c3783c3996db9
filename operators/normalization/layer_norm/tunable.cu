/*! evo
[tune]
BLOCK = [256, 64, 128, 512, 1024]
UNROLL = [4, 1, 2, 8]

[[launch]]
kernel = "layer_norm"
grid = ["rows"]
block = ["BLOCK"]
args = ["x", "weight", "bias", "y", "eps", "rows", "cols"]
*/

// One block per row; sums by shuffles and shared memory.
template <class Join>
__device__ __forceinline__ ACC over_block(ACC value, Join join) {
    __shared__ ACC partial[32];
    for (int offset = 16; offset > 0; offset /= 2) value = join(value, __shfl_xor_sync(0xffffffffu, value, offset));
    __syncthreads();  // an earlier call may still be read
    if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = value;
    __syncthreads();
    value = partial[0];
    for (int warp = 1; warp < BLOCK / 32; warp++) value = join(value, partial[warp]);
    return value;
}

struct Sum {
    __device__ ACC operator()(ACC a, ACC b) const { return a + b; }
};

extern "C" __global__ void __launch_bounds__(BLOCK) layer_norm(const T* x, const T* weight, const T* bias, T* y,
                                             ACC eps, int rows, int cols) {
    long long start = (long long)blockIdx.x * cols;
    ACC sum = 0, squares = 0;
#pragma unroll UNROLL
    for (int c = threadIdx.x; c < cols; c += BLOCK) sum += load(x[start + c]);
    ACC mean = over_block(sum, Sum()) / cols;
#pragma unroll UNROLL
    for (int c = threadIdx.x; c < cols; c += BLOCK)
        squares += (load(x[start + c]) - mean) * (load(x[start + c]) - mean);
    ACC scale = rsqrtf(over_block(squares, Sum()) / cols + eps);
#pragma unroll UNROLL
    for (int c = threadIdx.x; c < cols; c += BLOCK)
        y[start + c] = store(load(weight[c]) * (load(x[start + c]) - mean) * scale + load(bias[c]));
}
