/*! evo
[tune]
BLOCK = [128, 32, 64, 256, 512, 1024]

[let]
pairs = "batch * length * length"

[[buffer]]
name = "z"
dtype = "ACC"
shape = ["pairs", "dim"]

[[buffer]]
name = "left"
dtype = "ACC"
shape = ["pairs", "hidden"]

[[buffer]]
name = "right"
dtype = "ACC"
shape = ["pairs", "hidden"]

[[buffer]]
name = "gate"
dtype = "ACC"
shape = ["pairs", "hidden"]

[[buffer]]
name = "t"
dtype = "ACC"
shape = ["pairs", "hidden"]

[[launch]]
kernel = "normalize"
grid = ["ceil_div(pairs, BLOCK)"]
block = ["BLOCK"]
args = ["x", "norm_weight", "norm_bias", "z", "eps", "pairs", "dim"]

[[launch]]
kernel = "project"
grid = ["ceil_div(pairs * hidden, BLOCK)"]
block = ["BLOCK"]
args = [
    "z", "mask", "left_weight", "right_weight", "left_gate", "right_gate", "out_gate", "left", "right", "gate", "pairs",
    "dim", "hidden",
]

[[launch]]
kernel = "multiply"
grid = ["ceil_div(pairs * hidden, BLOCK)"]
block = ["BLOCK"]
args = ["left", "right", "t", "pairs", "length", "hidden"]

[[launch]]
kernel = "renormalize"
grid = ["ceil_div(pairs, BLOCK)"]
block = ["BLOCK"]
args = ["t", "gate", "out_norm_weight", "out_norm_bias", "eps", "pairs", "hidden"]

[[launch]]
kernel = "finish"
grid = ["ceil_div(pairs * dim, BLOCK)"]
block = ["BLOCK"]
args = ["t", "out_weight", "y", "pairs", "dim", "hidden"]
*/

__device__ ACC sigmoid(ACC value) { return 1 / (1 + expf(-value)); }

__device__ ACC product(const ACC* z, const T* weight, int count) {
    ACC sum = 0;
    for (int c = 0; c < count; c++) sum += z[c] * load(weight[c]);
    return sum;
}

// One thread per pair.
extern "C" __global__ void normalize(const T* x, const T* weight, const T* bias, ACC* z, ACC eps, int pairs, int dim) {
    int p = blockIdx.x * blockDim.x + threadIdx.x;
    if (p >= pairs) return;
    const T* in = x + (long long)p * dim;
    ACC* out = z + (long long)p * dim;
    ACC sum = 0, squares = 0;
    for (int c = 0; c < dim; c++) sum += load(in[c]);
    ACC mean = sum / dim;
    for (int c = 0; c < dim; c++) squares += (load(in[c]) - mean) * (load(in[c]) - mean);
    ACC scale = 1 / sqrtf(squares / dim + eps);
    for (int c = 0; c < dim; c++) out[c] = load(weight[c]) * ((load(in[c]) - mean) * scale) + load(bias[c]);
}

// One thread per pair and hidden channel.
extern "C" __global__ void project(const ACC* z, const T* mask, const T* left_weight, const T* right_weight,
                                   const T* left_gate, const T* right_gate, const T* out_gate, ACC* left, ACC* right,
                                   ACC* gate, int pairs, int dim, int hidden) {
    long long at = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (at >= (long long)pairs * hidden) return;
    const ACC* row = z + at / hidden * dim;
    long long w = at % hidden * dim;
    ACC kept = load(mask[at / hidden]);
    left[at] = kept * product(row, left_weight + w, dim) * sigmoid(product(row, left_gate + w, dim));
    right[at] = kept * product(row, right_weight + w, dim) * sigmoid(product(row, right_gate + w, dim));
    gate[at] = sigmoid(product(row, out_gate + w, dim));
}

// One thread per pair and hidden channel.
extern "C" __global__ void multiply(const ACC* left, const ACC* right, ACC* t, int pairs, int length, int hidden) {
    long long at = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (at >= (long long)pairs * hidden) return;
    long long p = at / hidden, i = p / length, j = p / length / length * length + p % length;
    const ACC* a = left + i * length * hidden + at % hidden;
    const ACC* b = right + j * length * hidden + at % hidden;
    ACC sum = 0;
    for (int k = 0; k < length; k++) sum += a[(long long)k * hidden] * b[(long long)k * hidden];
    t[at] = sum;
}

// One thread per pair.
extern "C" __global__ void renormalize(ACC* t, const ACC* gate, const T* weight, const T* bias, ACC eps, int pairs,
                                       int hidden) {
    int p = blockIdx.x * blockDim.x + threadIdx.x;
    if (p >= pairs) return;
    ACC* row = t + (long long)p * hidden;
    ACC sum = 0, squares = 0;
    for (int d = 0; d < hidden; d++) sum += row[d];
    ACC mean = sum / hidden;
    for (int d = 0; d < hidden; d++) squares += (row[d] - mean) * (row[d] - mean);
    ACC scale = 1 / sqrtf(squares / hidden + eps);
    for (int d = 0; d < hidden; d++)
        row[d] = (load(weight[d]) * ((row[d] - mean) * scale) + load(bias[d])) * gate[(long long)p * hidden + d];
}

// One thread per element of the result.
extern "C" __global__ void finish(const ACC* t, const T* weight, T* y, int pairs, int dim, int hidden) {
    long long at = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (at >= (long long)pairs * dim) return;
    y[at] = store(product(t + at / dim * hidden, weight + at % dim * hidden, hidden));
}
