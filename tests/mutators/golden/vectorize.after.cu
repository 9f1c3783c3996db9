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
template <class V, int N> struct alignas(sizeof(V) * N < 16 ? sizeof(V) * N : 16) Adjacent {
    V at[N];
};

// One thread per element.
extern "C" __global__ void gelu(const T* x, T* y, int n) {
    int i0 = (blockIdx.x * blockDim.x + threadIdx.x) * VECTOR;
    if (i0 >= n) return;
    if (i0 + VECTOR <= n) {
        Adjacent<T, VECTOR> x_vector = *(Adjacent<T, VECTOR> const*)(x + i0);
        Adjacent<T, VECTOR> y_vector;
        #pragma unroll
        for (int lane = 0; lane < VECTOR; lane++) {
            const int i = i0 + lane;
            ACC value = load(x_vector.at[lane]);
            y_vector.at[lane] = store(ACC(0.5) * value * (ACC(1) + erff(value * ACC(0.70710678118654752440))));
        }
        *(Adjacent<T, VECTOR>*)(y + i0) = y_vector;
    } else {
        for (int i = i0; i < n; i++) {
            ACC value = load(x[i]);
            y[i] = store(ACC(0.5) * value * (ACC(1) + erff(value * ACC(0.70710678118654752440))));
        }
    }
}
