/*! evo
deterministic = false
zero = ["integral"]

[tune]
BLOCK = [256, 64, 128, 512, 1024]
BLOCKS = [1024, 132, 264, 528]

[[launch]]
kernel = "simpson_int"
grid = ["min(ceil_div(intervals, BLOCK), BLOCKS)"]
block = ["BLOCK"]
args = ["samples", "integral", "intervals"]

[[launch]]
kernel = "scale"
grid = [1]
block = [1]
args = ["integral", "low", "high", "intervals"]
*/

// Every thread adds its own sum to the result, which is scaled once.
extern "C" __global__ void simpson_int(const T* samples, ACC* integral, int intervals) {
    int stride = 2 * gridDim.x * blockDim.x;
    ACC sum = 0;
    for (int i = 2 * (blockIdx.x * blockDim.x + threadIdx.x); i + 2 <= intervals; i += stride)
        sum += load(samples[i]) + 4 * load(samples[i + 1]) + load(samples[i + 2]);
    atomicAdd(integral, sum);
}

extern "C" __global__ void scale(ACC* integral, ACC low, ACC high, int intervals) {
    *integral *= (high - low) / intervals / 3;
}
