/*! evo
[tune]
BLOCK = [256, 64, 128, 512, 1024]

[[buffer]]
name = "even"
dtype = "ACC"
shape = ["n"]

[[buffer]]
name = "odd"
dtype = "ACC"
shape = ["n"]

[[launch]]
kernel = "widen"
grid = ["ceil_div(n, BLOCK)"]
block = ["BLOCK"]
args = ["x", "even", "n"]

[[launch]]
kernel = "add"
grid = ["ceil_div(n, BLOCK)"]
block = ["BLOCK"]
args = ["even if i % 2 == 0 else odd", "odd if i % 2 == 0 else even", "2 ** i", "n"]
group = "pass"

[[launch]]
kernel = "narrow"
grid = ["ceil_div(n, BLOCK)"]
block = ["BLOCK"]
args = ["even if ceil_log2(n) % 2 == 0 else odd", "y", "n"]

[group.pass]
repeat = "ceil_log2(n)"
*/

// Sums of twice as many values with every launch. (A thread that adds up all values before its own, as MSKernelBench
// has it, would need minutes for the largest sizes here.)
extern "C" __global__ void widen(const T* x, ACC* sums, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) sums[i] = load(x[i]);
}

extern "C" __global__ void add(const ACC* from, ACC* to, int step, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) to[i] = i >= step ? from[i - step] + from[i] : from[i];
}

extern "C" __global__ void narrow(const ACC* sums, T* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = store(sums[i]);
}
