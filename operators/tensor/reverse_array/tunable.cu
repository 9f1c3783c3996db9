/*! evo
[tune]
BLOCK = [256, 128, 512]
EACH = [4, 1, 2, 8]

[[launch]]
kernel = "reverse_array"
grid = ["ceil_div(n, BLOCK * EACH)"]
block = ["BLOCK"]
args = ["x", "y", "n"]
*/

// EACH elements per thread, all read before one is written; a warp reads and writes whole lines.
extern "C" __global__ void __launch_bounds__(BLOCK) reverse_array(const T* x, T* y, int n) {
    long long first = (long long)blockIdx.x * BLOCK * EACH + threadIdx.x;
    T values[EACH];
#pragma unroll
    for (int e = 0; e < EACH; e++)
        if (first + e * BLOCK < n) values[e] = x[n - 1 - (first + e * BLOCK)];
#pragma unroll
    for (int e = 0; e < EACH; e++)
        if (first + e * BLOCK < n) y[first + e * BLOCK] = values[e];
}
