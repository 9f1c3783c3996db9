/*! evo
[tune]
BLOCK = [256, 64, 128, 512, 1024]

[[launch]]
kernel = "leaky_relu"
grid = ["ceil_div(n, BLOCK)"]
block = ["BLOCK"]
args = ["x", "y", "alpha", "n"]
*/

// One thread per element.
extern "C" __global__ void leaky_relu(const T* x, T* y, ACC alpha, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    ACC value = load(x[i]);
    y[i] = store(value < 0 ? alpha * value : value);
}
