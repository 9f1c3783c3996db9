/*! evo
[tune]
BLOCK = [256, 64, 128, 512, 1024]

[[launch]]
kernel = "vector_add"
grid = ["ceil_div(n, BLOCK)"]
block = ["BLOCK"]
args = ["x", "y", "z", "n"]
*/

// One thread per element.
extern "C" __global__ void vector_add(const T* x, const T* y, T* z, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    z[i] = store(load(x[i]) + load(y[i]));
}
