/*! evo
[tune]
BLOCK = [256, 64, 128, 512, 1024]

[[launch]]
kernel = "elu"
grid = ["ceil_div(n, BLOCK)"]
block = ["BLOCK"]
args = ["x", "y", "alpha", "n"]
*/

// One thread per element.
extern "C" __global__ void elu(const T* x, T* y, ACC alpha, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    ACC value = load(x[i]);
    y[i] = store(value < 0 ? alpha * (expf(value) - ACC(1)) : value);
}
