/*! evo
[tune]
BLOCK = [256, 64, 128, 512, 1024]

[[launch]]
kernel = "prefix_sum"
grid = ["ceil_div(n, BLOCK)"]
block = ["BLOCK"]
args = ["x", "y", "n"]
*/

// One thread per result, each with a sum of its own.
extern "C" __global__ void prefix_sum(const T* x, T* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    ACC sum = 0;
    for (int j = 0; j <= i; j++) sum += load(x[j]);
    y[i] = store(sum);
}
