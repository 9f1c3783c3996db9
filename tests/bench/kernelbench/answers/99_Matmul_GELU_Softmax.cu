/*! evo
[let]
m = "batch_size"
n = "out_features"
k = "in_features"
rounds = "ceil_div(n, 128) * ceil_div(m, 256)"
fits = "k % 4 == 0 and n % 4 == 0 and 100 * rounds >= 40 * sm_count * ceil_div(rounds, sm_count)"

[[tensor_map]]
name = "b_tiles"
tensor = "linear_weight"
shape = ["k if fits else 4", "n if fits else 4"]
strides = ["4 * k if fits else 16"]
box = [32, 128]
swizzle = "128B"
l2_promotion = "L2_256B"

[[tensor_map]]
name = "a_tiles"
tensor = "x"
shape = ["k if fits else 4", "m if fits else 4"]
strides = ["4 * k if fits else 16"]
box = [32, 256]
swizzle = "128B"
l2_promotion = "L2_256B"

[[launch]]
kernel = "multiply_tiles"
when = "fits"
grid = ["min(rounds, sm_count)"]
block = [512]
shared = "1024 + 3 * 65536"
args = ["b_tiles", "a_tiles", "x", "linear_weight", "linear_bias", "y", "m", "n", "k"]

[[launch]]
kernel = "multiply_any"
when = "not fits"
grid = ["ceil_div(n, 32)", "ceil_div(m, 8)"]
block = [32, 8]
args = ["x", "linear_weight", "linear_bias", "y", "m", "n", "k"]

[[launch]]
kernel = "softmax_kept"            # a row in the registers of a block
when = "n % 4 == 0 and n <= 8192"
grid = ["m"]
block = [256]
args = ["y", "n"]

[[launch]]
kernel = "softmax_any"
when = "n % 4 != 0 or n > 8192"
grid = ["m"]
block = [256]
args = ["y", "n"]
*/
// @ tf32_parts.cuh
__device__ __forceinline__ float gelu(float v) { return 0.5f * v * (1 + erff(v * 0.70710678118654752440f)); }
__device__ __forceinline__ float finished(float sum, float bias) {
    return gelu(sum + bias);
// @ product.cuh

// The largest, or the sum, of what the 256 threads of a block have.
template <bool SUM> __device__ __forceinline__ float of_block(float v) {
    __shared__ float warps[8];
    for (int far = 16; far; far /= 2) {
        const float other = __shfl_xor_sync(0xffffffffu, v, far);
        v = SUM ? v + other : fmaxf(v, other);
    }
    __syncthreads();
    if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = v;
    __syncthreads();
    v = warps[0];
    for (int w = 1; w < 8; w++) v = SUM ? v + warps[w] : fmaxf(v, warps[w]);
    return v;
}

extern "C" __global__ void __launch_bounds__(256) softmax_kept(float* y, int n) {
    float4* row = (float4*)(y + (long long)blockIdx.x * n);
    float4 v[8];
    float largest = -INFINITY, sum = 0;
#pragma unroll
    for (int i = 0; i < 8; i++) {
        const int at = i * 256 + threadIdx.x;
        v[i] = at < n / 4 ? row[at] : make_float4(-INFINITY, -INFINITY, -INFINITY, -INFINITY);
        largest = fmaxf(largest, fmaxf(fmaxf(v[i].x, v[i].y), fmaxf(v[i].z, v[i].w)));
    }
    largest = of_block<false>(largest);
#pragma unroll
    for (int i = 0; i < 8; i++) {
        v[i] = make_float4(expf(v[i].x - largest), expf(v[i].y - largest), expf(v[i].z - largest), expf(v[i].w - largest));
        sum += (v[i].x + v[i].y) + (v[i].z + v[i].w);
    }
    sum = of_block<true>(sum);
#pragma unroll
    for (int i = 0; i < 8; i++) {
        const int at = i * 256 + threadIdx.x;
        if (at < n / 4) row[at] = make_float4(v[i].x / sum, v[i].y / sum, v[i].z / sum, v[i].w / sum);
    }
}

extern "C" __global__ void __launch_bounds__(256) softmax_any(float* y, int n) {
    float* row = y + (long long)blockIdx.x * n;
    float largest = -INFINITY, sum = 0;
    for (int j = threadIdx.x; j < n; j += 256) largest = fmaxf(largest, row[j]);
    largest = of_block<false>(largest);
    for (int j = threadIdx.x; j < n; j += 256) sum += expf(row[j] - largest);
    sum = of_block<true>(sum);
    for (int j = threadIdx.x; j < n; j += 256) row[j] = expf(row[j] - largest) / sum;
}
