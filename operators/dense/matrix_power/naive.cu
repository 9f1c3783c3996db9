/*! evo
[tune]
BLOCK_X = [16, 8, 32, 64]
BLOCK_Y = [16, 2, 4, 8]

[[buffer]]
name = "even"
dtype = "ACC"
shape = ["n", "n"]

[[buffer]]
name = "odd"
dtype = "ACC"
shape = ["n", "n"]

[[launch]]
kernel = "widen"
grid = ["ceil_div(n, BLOCK_X)", "ceil_div(n, BLOCK_Y)"]
block = ["BLOCK_X", "BLOCK_Y"]
args = ["a", "even", "n"]

[[launch]]
kernel = "multiply"
grid = ["ceil_div(n, BLOCK_X)", "ceil_div(n, BLOCK_Y)"]
block = ["BLOCK_X", "BLOCK_Y"]
args = ["a", "even if i % 2 == 0 else odd", "odd if i % 2 == 0 else even", "n"]
group = "power"

[[launch]]
kernel = "narrow"
grid = ["ceil_div(n, BLOCK_X)", "ceil_div(n, BLOCK_Y)"]
block = ["BLOCK_X", "BLOCK_Y"]
args = ["odd if power % 2 == 0 else even", "b", "n"]

[group.power]
repeat = "power - 1"
*/

// A product after the other, each with one thread per element; what lies between them is not rounded to T.
extern "C" __global__ void widen(const T* a, ACC* product, int n) {
    int i = blockIdx.y * blockDim.y + threadIdx.y;
    int j = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n && j < n) product[(long long)i * n + j] = load(a[(long long)i * n + j]);
}

extern "C" __global__ void multiply(const T* a, const ACC* from, ACC* to, int n) {
    int i = blockIdx.y * blockDim.y + threadIdx.y;
    int j = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n || j >= n) return;
    ACC sum = 0;
    for (int l = 0; l < n; l++) sum += load(a[(long long)i * n + l]) * from[(long long)l * n + j];
    to[(long long)i * n + j] = sum;
}

extern "C" __global__ void narrow(const ACC* product, T* b, int n) {
    int i = blockIdx.y * blockDim.y + threadIdx.y;
    int j = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n && j < n) b[(long long)i * n + j] = store(product[(long long)i * n + j]);
}
