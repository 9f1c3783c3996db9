/*! evo
deterministic = false # the order of atomic additions is anybody's
zero = ["total"]

[tune]
BLOCK = [256, 64, 128, 512, 1024]
BLOCKS = [132, 264, 528, 1024]

[[launch]]
kernel = "vector_sum"
grid = ["min(ceil_div(n, BLOCK), BLOCKS)"]
block = ["BLOCK"]
args = ["weight", "x", "total", "n"]
*/

// Every thread adds its own sum to the result.
extern "C" __global__ void vector_sum(const T* weight, const T* x, ACC* total, int n) {
    ACC sum = 0;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        sum += load(weight[i]) * load(x[i]);
    }
    atomicAdd(total, sum);
}
