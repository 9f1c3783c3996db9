/*! evo
[[launch]]
kernel = "layer_norm"
grid = ["ceil_div(rows, 4)"]
block = [32, 4]
args = ["x", "weight", "bias", "y", "eps", "rows", "cols"]
*/
/* redteam
operator = "layer_norm"
what = "a warp a row in one pass, as Welford does, its lanes put together as Chan does"
*/
extern "C" __global__ void layer_norm(const T* x, const T* weight, const T* bias, T* y, ACC eps, int rows, int cols) {
    const int r = blockIdx.x * 4 + threadIdx.y;
    if (r >= rows) return;
    const T* in = x + (long long)r * cols;
    ACC mean = 0, squares = 0, count = 0;
    for (int c = threadIdx.x; c < cols; c += 32) {
        const ACC value = load(in[c]), off = value - mean;
        count += 1;
        mean += off / count;
        squares += off * (value - mean);
    }
    for (int d = 16; d; d /= 2) {
        const ACC other_mean = __shfl_xor_sync(~0u, mean, d), other_squares = __shfl_xor_sync(~0u, squares, d);
        const ACC other_count = __shfl_xor_sync(~0u, count, d), both = count + other_count;
        if (both == 0) continue;
        // The same in both lanes: the lower one's share first.
        const bool first = (threadIdx.x & d) == 0;
        const ACC m0 = first ? mean : other_mean, m1 = first ? other_mean : mean;
        const ACC n0 = first ? count : other_count, n1 = first ? other_count : count;
        const ACC s0 = first ? squares : other_squares, s1 = first ? other_squares : squares;
        const ACC off = m1 - m0;
        mean = m0 + off * (n1 / both);
        squares = s0 + s1 + off * off * (n0 * n1 / both);
        count = both;
    }
    const ACC scale = 1 / sqrtf(squares / cols + eps);
    for (int c = threadIdx.x; c < cols; c += 32)
        y[(long long)r * cols + c] = store((load(in[c]) - mean) * scale * load(weight[c]) + load(bias[c]));
}
