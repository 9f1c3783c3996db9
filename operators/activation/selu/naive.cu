/*! evo
[tune]
BLOCK = [256, 64, 128, 512, 1024]

[[launch]]
kernel = "selu"
grid = ["ceil_div(n, BLOCK)"]
block = ["BLOCK"]
args = ["x", "y", "alpha", "scale", "n"]
*/

// One thread per element.
extern "C" __global__ void selu(const T* x, T* y, ACC alpha, ACC scale, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    ACC value = load(x[i]);
    y[i] = store(scale * (value < 0 ? alpha * (expf(value) - ACC(1)) : value));
}
