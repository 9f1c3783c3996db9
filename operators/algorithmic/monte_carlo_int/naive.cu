/*! evo
deterministic = false
zero = ["integral"]

[tune]
BLOCK = [256, 64, 128, 512, 1024]
BLOCKS = [1024, 132, 264, 528]

[[launch]]
kernel = "monte_carlo_int"
grid = ["min(ceil_div(n, BLOCK), BLOCKS)"]
block = ["BLOCK"]
args = ["samples", "integral", "n"]

[[launch]]
kernel = "scale"
grid = [1]
block = [1]
args = ["integral", "low", "high", "n"]
*/

// Every thread adds its own sum to the result, which is scaled once.
extern "C" __global__ void monte_carlo_int(const T* samples, ACC* integral, int n) {
    ACC sum = 0;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        sum += load(samples[i]);
    }
    atomicAdd(integral, sum);
}

extern "C" __global__ void scale(ACC* integral, ACC low, ACC high, int n) { *integral *= (high - low) / n; }
