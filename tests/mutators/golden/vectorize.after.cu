/*! evo
[tune]
BLOCK = [256, 64, 128, 512, 1024]
VECTOR = [4, 2, 1, 8]

[[launch]]
kernel = "gelu"
grid = ["ceil_div(ceil_div(n, BLOCK), VECTOR)"]
block = ["BLOCK"]
args = ["x", "y", "n"]
*/

// Neighbours that are moved at once, 16 bytes at most.
template <class V, int N> struct alignas(sizeof(V) * N < 16 ? sizeof(V) * N : 16) Pack {
    V at[N];
};

// One thread per element.
extern "C" __global__ void gelu(const T* x, T* y, int n) {
    int i0 = (blockIdx.x * blockDim.x + threadIdx.x) * VECTOR;
    if (i0 >= n) return;
    if (i0 + VECTOR <= n) {
        Pack<T, VECTOR> x_pack = *(Pack<T, VECTOR> const*)(x + i0);
        Pack<T, VECTOR> y_pack;
        #pragma unroll
        for (int lane = 0; lane < VECTOR; lane++) {
            const int i = i0 + lane;
            ACC value = load(x_pack.at[lane]);
            y_pack.at[lane] = store(ACC(0.5) * value * (ACC(1) + erff(value * ACC(0.70710678118654752440))));
        }
        *(Pack<T, VECTOR>*)(y + i0) = y_pack;
    } else {
        for (int i = i0; i < n; i++) {
            ACC value = load(x[i]);
            y[i] = store(ACC(0.5) * value * (ACC(1) + erff(value * ACC(0.70710678118654752440))));
        }
    }
}
