/*! evo
[tune]
BLOCK = [128, 32, 64, 256, 512, 1024]

[let]
pairs = "batch * length * length"

[[buffer]]
name = "z"
dtype = "ACC"
shape = ["dim", "pairs"]

[[buffer]]
name = "left"
dtype = "ACC"
shape = ["hidden", "pairs"]

[[buffer]]
name = "right"
dtype = "ACC"
shape = ["hidden", "pairs"]

[[buffer]]
name = "gate"
dtype = "ACC"
shape = ["hidden", "pairs"]

[[buffer]]
name = "t"
dtype = "ACC"
shape = ["hidden", "pairs"]

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
    "length", "dim", "hidden",
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
// Channel by channel, so that neighbouring threads, which have neighbouring pairs, read neighbouring numbers.

__device__ ACC sigmoid(ACC value) { return 1 / (1 + expf(-value)); }

// One thread per pair.
extern "C" __global__ void normalize(const T* x, const T* weight, const T* bias, ACC* z, ACC eps, int pairs, int dim) {
    int p = blockIdx.x * blockDim.x + threadIdx.x;
    if (p >= pairs) return;
    const T* in = x + (long long)p * dim;
    ACC sum = 0, squares = 0;
    for (int c = 0; c < dim; c++) sum += load(in[c]);
    ACC mean = sum / dim;
    for (int c = 0; c < dim; c++) {
        ACC apart = load(in[c]) - mean;
        squares += apart * apart;
    }
    ACC scale = 1 / sqrtf(squares / dim + eps);
    for (int c = 0; c < dim; c++)
        z[(long long)c * pairs + p] = load(weight[c]) * ((load(in[c]) - mean) * scale) + load(bias[c]);
}

// One thread per hidden channel and pair. The right side's plane of a batch is transposed.
extern "C" __global__ void project(const ACC* z, const T* mask, const T* left_weight, const T* right_weight,
                                   const T* left_gate, const T* right_gate, const T* out_gate, ACC* left, ACC* right,
                                   ACC* gate, int pairs, int length, int dim, int hidden) {
    long long at = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (at >= (long long)pairs * hidden) return;
    int p = at % pairs, row = p / length % length, column = p % length;
    long long w = at / pairs * dim;
    ACC l = 0, r = 0, l_gate = 0, r_gate = 0, o_gate = 0;
    for (int c = 0; c < dim; c++) {
        ACC value = z[(long long)c * pairs + p];
        l += value * load(left_weight[w + c]);
        r += value * load(right_weight[w + c]);
        l_gate += value * load(left_gate[w + c]);
        r_gate += value * load(right_gate[w + c]);
        o_gate += value * load(out_gate[w + c]);
    }
    ACC kept = load(mask[p]);
    left[at] = kept * l * sigmoid(l_gate);
    right[at - p % (length * length) + (long long)column * length + row] = kept * r * sigmoid(r_gate);
    gate[at] = sigmoid(o_gate);
}

// One thread per hidden channel and pair.
extern "C" __global__ void multiply(const ACC* left, const ACC* right, ACC* t, int pairs, int length, int hidden) {
    long long at = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (at >= (long long)pairs * hidden) return;
    int place = at % (length * length);
    const ACC* a = left + (at - place % length);
    const ACC* b = right + (at - place + place % length);
    ACC sum = 0;
    for (int k = 0; k < length; k++) sum += a[k] * b[(long long)k * length];
    t[at] = sum;
}

// One thread per pair.
extern "C" __global__ void renormalize(ACC* t, const ACC* gate, const T* weight, const T* bias, ACC eps, int pairs,
                                       int hidden) {
    int p = blockIdx.x * blockDim.x + threadIdx.x;
    if (p >= pairs) return;
    ACC sum = 0, squares = 0;
    for (int d = 0; d < hidden; d++) sum += t[(long long)d * pairs + p];
    ACC mean = sum / hidden;
    for (int d = 0; d < hidden; d++) {
        ACC apart = t[(long long)d * pairs + p] - mean;
        squares += apart * apart;
    }
    ACC scale = 1 / sqrtf(squares / hidden + eps);
    for (int d = 0; d < hidden; d++) {
        long long at = (long long)d * pairs + p;
        t[at] = (load(weight[d]) * ((t[at] - mean) * scale) + load(bias[d])) * gate[at];
    }
}

// One thread per channel and pair of the result.
extern "C" __global__ void finish(const ACC* t, const T* weight, T* y, int pairs, int dim, int hidden) {
    long long at = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (at >= (long long)pairs * dim) return;
    long long p = at % pairs, channel = at / pairs;
    ACC sum = 0;
    for (int d = 0; d < hidden; d++) sum += t[d * (long long)pairs + p] * load(weight[channel * hidden + d]);
    y[p * dim + channel] = store(sum);
}
