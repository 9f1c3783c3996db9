/*! evo
deterministic = false
zero = ["loss"]

[tune]
BLOCK = [256, 64, 128, 512, 1024]
BLOCKS = [1024, 132, 264, 528]

[[launch]]
kernel = "mse_loss"
grid = ["min(ceil_div(n, BLOCK), BLOCKS)"]
block = ["BLOCK"]
args = ["x", "y", "loss", "n"]

[[launch]]
kernel = "divide"
grid = [1]
block = [1]
args = ["loss", "n"]
*/

// Every thread adds its own sum to the result, which is divided once.
extern "C" __global__ void mse_loss(const T* x, const T* y, ACC* loss, int n) {
    ACC sum = 0;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        ACC difference = load(x[i]) - load(y[i]);
        sum += difference * difference;
    }
    atomicAdd(loss, sum);
}

extern "C" __global__ void divide(ACC* loss, int n) { *loss /= n; }
