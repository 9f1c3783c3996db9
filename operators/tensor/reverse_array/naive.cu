/*! evo
[tune]
BLOCK = [256, 64, 128, 512, 1024]

[[launch]]
kernel = "reverse_array"
grid = ["ceil_div(n, BLOCK)"]
block = ["BLOCK"]
args = ["x", "y", "n"]
*/

// One thread per element.
extern "C" __global__ void reverse_array(const T* x, T* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    y[i] = x[n - 1 - i];
}
