/*! evo
[tune]
BLOCK = [128, 32, 64, 256, 512, 1024]

[[launch]]
kernel = "softmax"
grid = ["rows"]
block = ["BLOCK"]
args = ["x", "y", "rows", "cols"]
*/

template <class V> __device__ __forceinline__ V block_max(V value) {
    for (int lanes = 16; lanes; lanes /= 2) {
        const V other = __shfl_xor_sync(0xffffffffu, value, lanes);
        value = other > value ? other : value;
    }
    __shared__ V parts[32];
    __syncthreads();  // an earlier call may still be read
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = value;
    __syncthreads();
    value = parts[0];
    for (int warp = 1; warp < blockDim.x / 32; warp++) {
        const V other = parts[warp];
        value = other > value ? other : value;
    }
    return value;
}

template <class V> __device__ __forceinline__ V block_sum(V value) {
    for (int lanes = 16; lanes; lanes /= 2) {
        const V other = __shfl_xor_sync(0xffffffffu, value, lanes);
        value = value + other;
    }
    __shared__ V parts[32];
    __syncthreads();  // an earlier call may still be read
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = value;
    __syncthreads();
    value = parts[0];
    for (int warp = 1; warp < blockDim.x / 32; warp++) {
        const V other = parts[warp];
        value = value + other;
    }
    return value;
}

// One thread per row.
extern "C" __global__ void softmax(const T* x, T* y, int rows, int cols) {
    int r = blockIdx.x;
    if (r >= rows) return;
    const T* in = x + (long long)r * cols;
    T* out = y + (long long)r * cols;
    ACC largest = load(in[0]);
    for (int c = 1 + int(threadIdx.x); c < cols; c += blockDim.x) {
        ACC value = load(in[c]);
        if (value > largest) largest = value;
    }
    largest = block_max(largest);
    ACC sum = 0;
    ACC sum_part = 0;
    for (int c = threadIdx.x; c < cols; c += blockDim.x) {
        sum_part += expf(load(in[c]) - largest);
    }
    sum += block_sum(sum_part);
    for (int c = threadIdx.x; c < cols; c += blockDim.x) {
        out[c] = store(expf(load(in[c]) - largest) / sum);
    }
}
