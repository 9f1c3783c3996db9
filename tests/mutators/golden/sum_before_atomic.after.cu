/*! evo
deterministic = false
zero = ["loss"]

[tune]
BLOCK = [256, 64, 128, 512, 1024]
BLOCKS = [1024, 132, 264, 528]

[[launch]]
kernel = "cross_entropy_loss"
grid = ["min(ceil_div(classes, BLOCK), BLOCKS)"]
block = ["BLOCK"]
args = ["predicted", "target", "loss", "classes"]
*/

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

// Every thread adds its own sum to the result.
extern "C" __global__ void cross_entropy_loss(const T* predicted, const T* target, ACC* loss, int classes) {
    ACC sum = 0;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < classes; i += gridDim.x * blockDim.x) {
        ACC p = load(predicted[i]);
        if (p < ACC(1e-8)) p = ACC(1e-8);
        sum += load(target[i]) * logf(p);
    }
    const ACC part = block_sum(ACC(-sum));
    if (threadIdx.x == 0) atomicAdd(loss, part);
}
