/*! evo
[tune]
TILE_I = [64, 32, 128]
TILE_J = [64, 32, 128]
TILE_L = [16, 8, 32]
EACH_I = [4, 2, 8]
EACH_J = [4, 2, 8]
BLOCK = [256, 128, 512]

[[buffer]]
name = "scores"
dtype = "ACC"
shape = ["queries", "keys"]

[[buffer]]
name = "sums"
dtype = "ACC"
shape = ["queries"]

[[launch]]
kernel = "products"
grid = ["ceil_div(keys, TILE_J)", "ceil_div(queries, TILE_I)"]
block = ["TILE_J // EACH_J", "TILE_I // EACH_I"]
args = ["q", "k", "scores", "queries", "keys", "dim"]

[[launch]]
kernel = "weights"
grid = ["queries"]
block = ["BLOCK"]
args = ["scores", "sums", "keys"]

[[launch]]
kernel = "averages"
grid = ["ceil_div(width, TILE_J)", "ceil_div(queries, TILE_I)"]
block = ["TILE_J // EACH_J", "TILE_I // EACH_I"]
args = ["scores", "sums", "v", "y", "queries", "keys", "width"]
*/

// Two products by tiles in shared memory, EACH_I x EACH_J results per thread in registers; between them the rows of
// scores become weights, whose sums divide the result.
struct Tile {
    ACC left[TILE_L][TILE_I + 1], right[TILE_L][TILE_J + 1];
};

__device__ __forceinline__ void multiply(const Tile& tile, ACC (&sums)[EACH_I][EACH_J]) {
    constexpr int ACROSS = TILE_J / EACH_J, DOWN = TILE_I / EACH_I;
#pragma unroll
    for (int l = 0; l < TILE_L; l++) {
        ACC column[EACH_I], row[EACH_J];
#pragma unroll
        for (int i = 0; i < EACH_I; i++) column[i] = tile.left[l][threadIdx.y + i * DOWN];
#pragma unroll
        for (int j = 0; j < EACH_J; j++) row[j] = tile.right[l][threadIdx.x + j * ACROSS];
#pragma unroll
        for (int i = 0; i < EACH_I; i++)
#pragma unroll
            for (int j = 0; j < EACH_J; j++) sums[i][j] += column[i] * row[j];
    }
}

extern "C" __global__ void __launch_bounds__(TILE_I / EACH_I * (TILE_J / EACH_J)) products(const T* q, const T* k,
                                             ACC* scores, int queries, int keys, int dim) {
    constexpr int ACROSS = TILE_J / EACH_J, DOWN = TILE_I / EACH_I, THREADS = ACROSS * DOWN;
    __shared__ Tile tile;
    int top = blockIdx.y * TILE_I, begin = blockIdx.x * TILE_J, thread = threadIdx.y * ACROSS + threadIdx.x;
    ACC sums[EACH_I][EACH_J] = {};
    for (int first = 0; first < dim; first += TILE_L) {
        for (int t = thread; t < TILE_I * TILE_L; t += THREADS) {
            int i = t / TILE_L, l = t % TILE_L;
            tile.left[l][i] =
                top + i < queries && first + l < dim ? load(q[(long long)(top + i) * dim + first + l]) : ACC(0);
        }
        for (int t = thread; t < TILE_J * TILE_L; t += THREADS) {
            int j = t / TILE_L, l = t % TILE_L;
            tile.right[l][j] =
                begin + j < keys && first + l < dim ? load(k[(long long)(begin + j) * dim + first + l]) : ACC(0);
        }
        __syncthreads();
        multiply(tile, sums);
        __syncthreads();
    }
    ACC scale = ACC(1) / sqrtf(ACC(dim));
#pragma unroll
    for (int i = 0; i < EACH_I; i++)
#pragma unroll
        for (int j = 0; j < EACH_J; j++) {
            int r = top + threadIdx.y + i * DOWN, s = begin + threadIdx.x + j * ACROSS;
            if (r < queries && s < keys) scores[(long long)r * keys + s] = sums[i][j] * scale;
        }
}

template <class Join>
__device__ __forceinline__ ACC over_block(ACC value, Join join) {
    __shared__ ACC partial[32];
    for (int offset = 16; offset > 0; offset /= 2) value = join(value, __shfl_xor_sync(0xffffffffu, value, offset));
    __syncthreads();  // an earlier call may still be read
    if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = value;
    __syncthreads();
    value = partial[0];
    for (int warp = 1; warp < BLOCK / 32; warp++) value = join(value, partial[warp]);
    return value;
}

struct Sum {
    __device__ ACC operator()(ACC a, ACC b) const { return a + b; }
};

struct Largest {
    __device__ ACC operator()(ACC a, ACC b) const { return a > b || a != a ? a : b; }
};

extern "C" __global__ void __launch_bounds__(BLOCK) weights(ACC* scores, ACC* sums, int keys) {
    ACC* row = scores + (long long)blockIdx.x * keys;
    ACC own = row[0];
    for (int j = threadIdx.x; j < keys; j += BLOCK) own = Largest()(own, row[j]);
    ACC largest = over_block(own, Largest()), sum = 0;
    for (int j = threadIdx.x; j < keys; j += BLOCK) sum += row[j] = __expf(row[j] - largest);
    sum = over_block(sum, Sum());
    if (threadIdx.x == 0) sums[blockIdx.x] = sum;
}

extern "C" __global__ void __launch_bounds__(TILE_I / EACH_I * (TILE_J / EACH_J)) averages(const ACC* scores,
                                             const ACC* totals, const T* v, T* y, int queries, int keys, int width) {
    constexpr int ACROSS = TILE_J / EACH_J, DOWN = TILE_I / EACH_I, THREADS = ACROSS * DOWN;
    __shared__ Tile tile;
    int top = blockIdx.y * TILE_I, begin = blockIdx.x * TILE_J, thread = threadIdx.y * ACROSS + threadIdx.x;
    ACC sums[EACH_I][EACH_J] = {};
    for (int first = 0; first < keys; first += TILE_L) {
        for (int t = thread; t < TILE_I * TILE_L; t += THREADS) {
            int i = t / TILE_L, l = t % TILE_L;
            tile.left[l][i] =
                top + i < queries && first + l < keys ? scores[(long long)(top + i) * keys + first + l] : ACC(0);
        }
        for (int t = thread; t < TILE_L * TILE_J; t += THREADS) {
            int l = t / TILE_J, j = t % TILE_J;
            tile.right[l][j] =
                first + l < keys && begin + j < width ? load(v[(long long)(first + l) * width + begin + j]) : ACC(0);
        }
        __syncthreads();
        multiply(tile, sums);
        __syncthreads();
    }
#pragma unroll
    for (int i = 0; i < EACH_I; i++)
#pragma unroll
        for (int j = 0; j < EACH_J; j++) {
            int r = top + threadIdx.y + i * DOWN, s = begin + threadIdx.x + j * ACROSS;
            if (r < queries && s < width) y[(long long)r * width + s] = store(sums[i][j] / totals[r]);
        }
}
