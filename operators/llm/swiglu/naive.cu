/*! evo
[tune]
BLOCK = [256, 64, 128, 512, 1024]

[[launch]]
kernel = "swiglu"
grid = ["ceil_div(n, BLOCK)"]
block = ["BLOCK"]
args = ["gate", "value", "y", "beta", "n"]
*/

// One thread per element.
extern "C" __global__ void swiglu(const T* gate, const T* value, T* y, ACC beta, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    ACC g = load(gate[i]);
    y[i] = store(g / (ACC(1) + expf(-beta * g)) * load(value[i]));
}
