/*! evo
[[buffer]]
name = "sums"
dtype = "fp64"
shape = ["next_pow2(ceil_div(n, 64))"]

[[launch]]
kernel = "begin"
grid = ["next_pow2(ceil_div(n, 64))"]
block = [32]
args = ["x", "y", "sums", "n"]

[[launch]]
kernel = "halve"
group = "halves"
grid = ["ceil_div(next_pow2(ceil_div(n, 64)), 64)"]
block = [64]
args = ["sums", "next_pow2(ceil_div(n, 64)) // 2 ** (i + 1)"]

[group.halves]
repeat = "ceil_log2(ceil_div(n, 64))"

[[launch]]
kernel = "end"
grid = [1]
block = [1]
args = ["sums", "loss", "n"]
*/
/* redteam
operator = "mse_loss"
what = "halved from launch to launch, in fp64"
*/
extern "C" __global__ void begin(const T* x, const T* y, double* sums, int n) {
    ACC sum = 0;
    for (int i = blockIdx.x * 64 + threadIdx.x; i < n && i < blockIdx.x * 64 + 64; i += 32) {
        const ACC off = load(x[i]) - load(y[i]);
        sum += off * off;
    }
    for (int d = 16; d; d /= 2) sum += __shfl_xor_sync(~0u, sum, d);
    if (threadIdx.x == 0) sums[blockIdx.x] = sum;
}
extern "C" __global__ void halve(double* sums, int half) {
    const int i = blockIdx.x * 64 + threadIdx.x;
    if (i < half) sums[i] += sums[i + half];
}
extern "C" __global__ void end(const double* sums, ACC* loss, int n) { *loss = ACC(sums[0] / n); }
