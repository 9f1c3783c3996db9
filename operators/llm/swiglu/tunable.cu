/*! evo
[tune]
BLOCK = [256, 128, 512, 1024]
VEC = [4, 1, 2, 8]
WAVES = [8, 2, 4, 16, 32]

[[launch]]
kernel = "swiglu"
grid = ["max(min(ceil_div(n, BLOCK * VEC), sm_count * WAVES), 1)"]
block = ["BLOCK"]
args = ["gate", "value", "y", "beta", "n"]
*/

// Loads and stores of several elements at once, at most 16 bytes; blocks stride over the vector.
struct alignas(VEC * sizeof(T) < 16 ? VEC * sizeof(T) : 16) Pack {
    T at[VEC];
};

__device__ __forceinline__ T swish(T gate, T value_, ACC beta) {
    ACC g = load(gate);
    return store(g / (ACC(1) + __expf(-beta * g)) * load(value_));
}

extern "C" __global__ void __launch_bounds__(BLOCK) swiglu(const T* gate, const T* value_, T* y, ACC beta, int n) {
    long long stride = (long long)gridDim.x * BLOCK, first = (long long)blockIdx.x * BLOCK + threadIdx.x;
    for (long long p = first; p < n / VEC; p += stride) {
        Pack gates = reinterpret_cast<const Pack*>(gate)[p], held = reinterpret_cast<const Pack*>(value_)[p], result;
#pragma unroll
        for (int i = 0; i < VEC; i++) result.at[i] = swish(gates.at[i], held.at[i], beta);
        reinterpret_cast<Pack*>(y)[p] = result;
    }
    for (long long i = n / VEC * VEC + first; i < n; i += stride) y[i] = swish(gate[i], value_[i], beta);
}
