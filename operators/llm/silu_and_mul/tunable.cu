/*! evo
requires = "cols % 8 == 0" # so that both halves of every row begin at a vector's boundary

[tune]
BLOCK = [256, 128, 512, 1024]
VEC = [4, 1, 2, 8]

[[launch]]
kernel = "silu_and_mul"
grid = ["ceil_div(cols, BLOCK * VEC)", "min(rows, 65535)"]
block = ["BLOCK"]
args = ["x", "y", "rows", "cols"]
*/

// Loads and stores of several elements at once, at most 16 bytes.
struct alignas(VEC * sizeof(T) < 16 ? VEC * sizeof(T) : 16) Pack {
    T at[VEC];
};

extern "C" __global__ void __launch_bounds__(BLOCK) silu_and_mul(const T* x, T* y, int rows, int cols) {
    int c = (blockIdx.x * BLOCK + threadIdx.x) * VEC;
    if (c >= cols) return;
    for (long long r = blockIdx.y; r < rows; r += gridDim.y) {
        Pack gates = *reinterpret_cast<const Pack*>(x + 2 * r * cols + c), result;
        Pack values = *reinterpret_cast<const Pack*>(x + (2 * r + 1) * cols + c);
#pragma unroll
        for (int i = 0; i < VEC; i++) {
            ACC gate = load(gates.at[i]);
            result.at[i] = store(gate / (ACC(1) + __expf(-gate)) * load(values.at[i]));
        }
        *reinterpret_cast<Pack*>(y + r * cols + c) = result;
    }
}
