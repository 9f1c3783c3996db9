/*! evo
deterministic = false
zero = ["product"]

[tune]
BLOCK = [256, 64, 128, 512, 1024]
BLOCKS = [1024, 132, 264, 528]

[[launch]]
kernel = "dot_product"
grid = ["min(ceil_div(n, BLOCK), BLOCKS)"]
block = ["BLOCK"]
args = ["x", "y", "product", "n"]
*/

// Every thread adds its own sum to the result.
extern "C" __global__ void dot_product(const T* x, const T* y, ACC* product, int n) {
    ACC sum = 0;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        sum += load(x[i]) * load(y[i]);
    }
    atomicAdd(product, sum);
}
