/*! evo
[let]
m = "batch_size"
n = "out_features"
k = "in_features"
chunks = "ceil_div(n, 64)"

[[buffer]]
name = "parts"
dtype = "fp64"
shape = ["chunks", "k"]

[[buffer]]
name = "columns"
dtype = "ACC"
shape = ["k"]

[[buffer]]
name = "shift"
dtype = "fp64"
shape = ["1"]

[[launch]]
kernel = "add_rows<4>"
when = "k % 4 == 0"
grid = ["ceil_div(k, 1024)", "chunks"]
block = [256]
args = ["gemm_weight", "parts", "n", "k"]

[[launch]]
kernel = "add_rows<1>"
when = "k % 4 != 0"
grid = ["ceil_div(k, 256)", "chunks"]
block = [256]
args = ["gemm_weight", "parts", "n", "k"]

[[launch]]
kernel = "add_parts"
grid = ["ceil_div(k, 32) + 1"]
block = [32, 8]
args = ["parts", "gemm_bias", "subtract", "columns", "shift", "chunks", "n", "k"]

[[launch]]
kernel = "rows<4>"
when = "k % 4 == 0"
grid = ["m"]
block = [256]
args = ["x", "columns", "shift", "y", "n", "k"]

[[launch]]
kernel = "rows<1>"
when = "k % 4 != 0"
grid = ["m"]
block = [256]
args = ["x", "columns", "shift", "y", "n", "k"]
*/
// The mean over the columns of x w^T + bias - subtract is x times the sums of w's columns, and the sum of bias - subtract,
// over n: w is read once, and no product of matrices is left. The logarithm of the sum of one exponential is its argument.
// Sums are kept in fp64, for which memory leaves time.
template <int V> struct alignas(4 * V) Some { float v[V]; };

// 64 rows of w.
template <int V> __global__ void __launch_bounds__(256) add_rows(const float* w, double* parts, int n, int k) {
    const int at = (blockIdx.x * 256 + threadIdx.x) * V, first = blockIdx.y * 64, last = min(first + 64, n);
    if (at >= k) return;
    double sum[V] = {};
#pragma unroll 8
    for (int j = first; j < last; j++) {
        const Some<V> row = *(const Some<V>*)(w + (long long)j * k + at);
#pragma unroll
        for (int e = 0; e < V; e++) sum[e] += row.v[e];
    }
#pragma unroll
    for (int e = 0; e < V; e++) parts[(long long)blockIdx.y * k + at + e] = sum[e];
}

// The sums of 32 columns; the last block: the sum of bias - subtract.
extern "C" __global__ void __launch_bounds__(256) add_parts(
    const double* parts, const float* bias, const float* subtract, float* columns, double* shift, int chunks, int n, int k) {
    __shared__ double sums[8][32];
    const bool last = blockIdx.x == gridDim.x - 1;
    const int at = blockIdx.x * 32 + threadIdx.x;
    double sum = 0;
    if (last)
        for (int j = threadIdx.y * 32 + threadIdx.x; j < n; j += 256) sum += (double)bias[j] - (double)subtract[j];
    else if (at < k)
        for (int c = threadIdx.y; c < chunks; c += 8) sum += parts[(long long)c * k + at];
    sums[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y) return;
    for (int i = 1; i < 8; i++) sum += sums[i][threadIdx.x];
    if (last) {
        for (int far = 16; far; far /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, far);
        if (threadIdx.x == 0) *shift = sum;
    } else if (at < k)
        columns[at] = (float)sum;
}

template <int V> __global__ void __launch_bounds__(256) rows(const float* x, const float* columns, const double* shift, float* y, int n, int k) {
    __shared__ double warps[8];
    const Some<V>* row = (const Some<V>*)(x + (long long)blockIdx.x * k);
    const Some<V>* column = (const Some<V>*)columns;
    Some<V>* to = (Some<V>*)(y + (long long)blockIdx.x * k);
    double sum = 0;
#pragma unroll 8
    for (int l = threadIdx.x; l < k / V; l += 256) {
        const Some<V> v = row[l], w = column[l];
#pragma unroll
        for (int e = 0; e < V; e++) sum += (double)v.v[e] * (double)w.v[e];
    }
    for (int far = 16; far; far /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, far);
    if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = sum;
    __syncthreads();
    sum = *shift;
    for (int i = 0; i < 8; i++) sum += warps[i];
    const float mean = (float)(sum / n), add = 0.5f * mean * (1 + erff(mean * 0.70710678118654752440f));
#pragma unroll 8
    for (int l = threadIdx.x; l < k / V; l += 256) {
        Some<V> v = row[l];
#pragma unroll
        for (int e = 0; e < V; e++) v.v[e] += add;
        to[l] = v;
    }
}
