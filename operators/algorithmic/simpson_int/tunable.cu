/*! evo
[tune]
BLOCK = [256, 128, 512, 1024]
BLOCKS = [264, 132, 528, 1056]
UNROLL = [4, 1, 2, 8]

[[buffer]]
name = "partial"
dtype = "ACC"
shape = ["BLOCKS"]

[[launch]]
kernel = "simpson_int"
grid = ["BLOCKS"]
block = ["BLOCK"]
args = ["samples", "partial", "intervals"]

[[launch]]
kernel = "finish"
grid = [1]
block = ["BLOCK"]
args = ["partial", "integral", "low", "high", "intervals"]
*/

// A sum per block, then one block adds those up: always in the same order.
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

// The rule's weights are 1, 4, 2, 4, ..., 2, 4, 1: every sample is read once.
extern "C" __global__ void __launch_bounds__(BLOCK) simpson_int(const T* samples, ACC* partial, int intervals) {
    long long last = intervals / 2 * 2;  // an odd interval at the end is left out
    ACC sum = 0;
#pragma unroll UNROLL
    for (long long i = blockIdx.x * BLOCK + threadIdx.x; i <= last && last > 0; i += BLOCKS * BLOCK)
        sum += ACC(i == 0 || i == last ? 1 : i % 2 ? 4 : 2) * load(samples[i]);
    sum = over_block(sum, Sum());
    if (threadIdx.x == 0) partial[blockIdx.x] = sum;
}

extern "C" __global__ void __launch_bounds__(BLOCK) finish(const ACC* partial, ACC* integral, ACC low, ACC high,
                                             int intervals) {
    ACC sum = 0;
    for (int i = threadIdx.x; i < BLOCKS; i += BLOCK) sum += partial[i];
    sum = over_block(sum, Sum());
    if (threadIdx.x == 0) *integral = (high - low) / intervals / 3 * sum;
}
