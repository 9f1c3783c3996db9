/*! evo
[[launch]]
kernel = "rms_norm"
grid = ["rows"]
block = [32]
args = ["x", "weight", "bias", "y", "eps", "cols"]
*/
/* redteam
operator = "rms_norm"
what = "an inverse root from an integer trick and Newton's steps"
*/
__device__ float inverse_root(float v) {
    if (!(v < 1e38f)) return rsqrtf(v);
    float r = __int_as_float(0x5f3759df - (__float_as_int(v) >> 1));
    for (int step = 0; step < 4; step++) r = r * fmaf(-0.5f * v * r, r, 1.5f);
    return r;
}

extern "C" __global__ void rms_norm(const T* x, const T* weight, const T* bias, T* y, ACC eps, int cols) {
    const T* in = x + (long long)blockIdx.x * cols;
    ACC sum = 0;
    for (int c = threadIdx.x; c < cols; c += 32) sum += load(in[c]) * load(in[c]);
    for (int d = 16; d; d /= 2) sum += __shfl_xor_sync(~0u, sum, d);
    const ACC scale = inverse_root(sum / cols + eps);
    for (int c = threadIdx.x; c < cols; c += 32)
        y[(long long)blockIdx.x * cols + c] = store(load(in[c]) * scale * load(weight[c]) + load(bias[c]));
}
