/*! evo
[tune]
BLOCK = [256, 64, 128, 512, 1024]
UNROLL = [4, 1, 2, 8]

[[launch]]
kernel = "fused_add_rms_norm"
grid = ["rows"]
block = ["BLOCK"]
args = ["x", "residual", "weight", "eps", "rows", "cols"]
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

extern "C" __global__ void __launch_bounds__(BLOCK) fused_add_rms_norm(T* x, T* residual, const T* weight, ACC eps,
                                             int rows, int cols) {
    long long start = (long long)blockIdx.x * cols;
    ACC sum = 0;
#pragma unroll UNROLL
    for (int c = threadIdx.x; c < cols; c += BLOCK) {
        ACC total = load(x[start + c]) + load(residual[start + c]);
        sum += total * total;
    }
    ACC scale = rsqrtf(over_block(sum, Sum()) / cols + eps);
#pragma unroll UNROLL
    for (int c = threadIdx.x; c < cols; c += BLOCK) {
        ACC total = load(x[start + c]) + load(residual[start + c]);
        residual[start + c] = store(total);
        x[start + c] = store(total * scale * load(weight[c]));
    }
}
