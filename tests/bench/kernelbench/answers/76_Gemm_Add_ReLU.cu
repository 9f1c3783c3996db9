/*! evo
[let]
m = "batch_size"
n = "out_features"
k = "in_features"
rounds = "ceil_div(n, 128) * ceil_div(m, 256)"
fits = "k % 4 == 0 and n % 4 == 0 and 100 * rounds >= 40 * sm_count * ceil_div(rounds, sm_count)"

[[tensor_map]]
name = "b_tiles"
tensor = "gemm_weight"
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
args = ["b_tiles", "a_tiles", "x", "gemm_weight", "bias", "y", "m", "n", "k"]

[[launch]]
kernel = "multiply_any"
when = "not fits"
grid = ["ceil_div(n, 32)", "ceil_div(m, 8)"]
block = [32, 8]
args = ["x", "gemm_weight", "bias", "y", "m", "n", "k"]
*/
// @ tf32_parts.cuh
__device__ __forceinline__ float finished(float sum, float bias) {
    const float v = sum + bias;
    return v < 0 ? 0 : v;
// @ product.cuh
