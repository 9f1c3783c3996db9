/*! evo
[tune]
BLOCK = [256, 128, 512, 1024]
VEC = [4, 1, 2, 8]
WAVES = [8, 2, 4, 16, 32]

[[launch]]
kernel = "leaky_relu"
grid = ["max(min(ceil_div(n, BLOCK * VEC), sm_count * WAVES), 1)"]
block = ["BLOCK"]
args = ["x", "y", "alpha", "n"]
*/

// Loads and stores of several elements at once, at most 16 bytes; blocks stride over the vector.
struct alignas(VEC * sizeof(T) < 16 ? VEC * sizeof(T) : 16) Pack {
    T at[VEC];
};

__device__ __forceinline__ T value(T x, ACC alpha) {
    return load(x) < 0 ? store(alpha * load(x)) : x;
}

extern "C" __global__ void __launch_bounds__(BLOCK) leaky_relu(const T* x, T* y, ACC alpha, int n) {
    long long stride = (long long)gridDim.x * BLOCK, first = (long long)blockIdx.x * BLOCK + threadIdx.x;
    for (long long p = first; p < n / VEC; p += stride) {
        Pack x_pack = reinterpret_cast<const Pack*>(x)[p], result;
#pragma unroll
        for (int i = 0; i < VEC; i++) result.at[i] = value(x_pack.at[i], alpha);
        reinterpret_cast<Pack*>(y)[p] = result;
    }
    for (long long i = n / VEC * VEC + first; i < n; i += stride) y[i] = value(x[i], alpha);
}
