/*! evo
[[launch]]
kernel = "axpb"
grid = ["ceil_div(n, 256)"]
block = [256]
args = ["x", "b", "y", "alpha", "n"]
*/

extern "C" __global__ void axpb(const T* x, const T* b, T* y, T alpha, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = store(load(alpha) * load(x[i]) + load(b[i]));
}
