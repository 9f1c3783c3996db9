/*! evo
[tune]
BLOCK = [256, 64, 128, 512, 1024]

[[launch]]
kernel = "conv_1d"
grid = ["ceil_div(n - taps + 1, BLOCK)"]
block = ["BLOCK"]
args = ["x", "w", "y", "n", "taps"]
*/

// One thread per result.
extern "C" __global__ void conv_1d(const T* x, const T* w, T* y, int n, int taps) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n - taps + 1) return;
    ACC sum = 0;
    for (int l = 0; l < taps; l++) sum += load(x[i + l]) * load(w[l]);
    y[i] = store(sum);
}
