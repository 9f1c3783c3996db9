/*! evo
[tune]
BLOCK = [256, 64, 128, 512, 1024]

[[launch]]
kernel = "elementwise"
grid = ["ceil_div(n, BLOCK)"]
block = ["BLOCK"]
args = ["x", "y", "n"]
*/

// One thread per element.
extern "C" __global__ void elementwise(const T* x, T* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    ACC value = load(x[i]);
    y[i] = store(value * value + ACC(1));
}
