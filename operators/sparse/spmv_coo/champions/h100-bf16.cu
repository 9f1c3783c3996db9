/*! evo
requires = "(rows <= 512 * 32768) if cols * nnz > 8692398240 else (1)"
deterministic = false
zero = [{ name = "sums", when = "(cols * nnz <= 8692398240)" }, { name = "sums_2", when = "(cols * nnz > 8692398240)" }]

[tune]
BLOCK = [128, 32, 64, 256, 512, 1024]
DIRECT = [24576]

[[buffer]]
name = "sums"
dtype = "ACC"
shape = ["rows"]

[[buffer]]                         # entries in each bucket of rows, then a sum for every row
name = "sums_2"
dtype = "ACC"
shape = ["512 + rows"]

[[buffer]]                         # row and product, by bucket
name = "entries"
dtype = "int32"
shape = ["4 if rows <= DIRECT else 2 * 512 * (nnz * 2 ** ceil_log2(ceil_div(rows, 512)) // rows // 8 * 10 + 1024)"]

[[launch]]
when = "cols * nnz <= 8692398240"
kernel = "spmv_coo"
grid = ["max(ceil_div(nnz, BLOCK), 1)"]
block = ["BLOCK"]
args = ["row_indices", "col_indices", "values", "x", "sums", "nnz"]

[[launch]]
when = "cols * nnz <= 8692398240"
kernel = "finish"
grid = ["ceil_div(rows, 256)"]
block = [256]
args = ["sums", "y", "rows"]
[[launch]]
when = "(cols * nnz > 8692398240) and (rows <= DIRECT)"
kernel = "direct"
grid = ["max(1, min(ceil_div(nnz, 8192), 2 * sm_count))"]
block = [1024]
shared = "4 * rows + (sizeof_T * cols if cols <= 16384 else 0)"
args = ["row_indices", "col_indices", "values", "x", "sums_2", "nnz", "rows", "cols"]

[[launch]]
when = "(cols * nnz > 8692398240) and (rows <= DIRECT)"
kernel = "finish_2"
grid = ["ceil_div(rows, 256)"]
block = [256]
args = ["sums_2", "y", "rows"]

[[launch]]
when = "(cols * nnz > 8692398240) and (rows > DIRECT)"
kernel = "partition"
grid = ["max(1, ceil_div(nnz, 8192))"]
block = [512]
shared = "8192 * 8"
args = ["row_indices", "col_indices", "values", "x", "sums_2", "entries", "nnz", "cols", "ceil_log2(ceil_div(rows, 512))", "(nnz * 2 ** ceil_log2(ceil_div(rows, 512)) // rows // 8 * 10 + 1024)"]

[[launch]]
when = "(cols * nnz > 8692398240) and (rows > DIRECT)"
kernel = "gather"
grid = ["ceil_div(rows, 2 ** ceil_log2(ceil_div(rows, 512)))"]
block = [512]
shared = "4 * 2 ** ceil_log2(ceil_div(rows, 512))"
args = ["entries", "sums_2", "y", "rows", "ceil_log2(ceil_div(rows, 512))", "(nnz * 2 ** ceil_log2(ceil_div(rows, 512)) // rows // 8 * 10 + 1024)"]
*/

// One thread per entry.
extern "C" __global__ void spmv_coo(const int* row_indices, const int* col_indices, const T* values, const T* x,
                                    ACC* sums, int nnz) {
    int p = blockIdx.x * blockDim.x + threadIdx.x;
    if (p < nnz) atomicAdd(&sums[row_indices[p]], load(values[p]) * load(x[col_indices[p]]));
}

// What was added up in the accumulator's type becomes the result.
extern "C" __global__ void finish(const ACC* sums, T* y, int count) {
    long long at = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (at < count) y[at] = store(sums[at]);
}

// Atomic sums_2 in device memory cost a sector each. With few rows every block adds up in its shared memory. Else products
// are first put into at most 512 buckets of consecutive rows, tile by tile through shared memory, so that they are written
// in runs; then a block adds up a bucket in shared memory. What a bucket has no room for is added in device memory.
constexpr int MOST = 512;            // buckets
constexpr int TILE = 8192;           // entries of a block of `partition`
constexpr int THREADS = 512;
constexpr int EACH = TILE / THREADS;

template <int WIDE> struct alignas(WIDE * sizeof(T)) Vector { T v[WIDE]; };

// Sum of the values of all threads before this one, in a block of 512; `total` of all of them.
__device__ __forceinline__ int scanned(int value, int* warps, int& total) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    int sum = value;
#pragma unroll
    for (int d = 1; d < 32; d *= 2) {
        const int other = __shfl_up_sync(0xffffffffu, sum, d);
        if (lane >= d) sum += other;
    }
    if (lane == 31) warps[warp] = sum;
    __syncthreads();
    int before = 0, all = 0;
#pragma unroll
    for (int w = 0; w < THREADS / 32; w++) {
        const int there = warps[w];
        before += w < warp ? there : 0;
        all += there;
    }
    __syncthreads();
    total = all;
    return before + sum - value;
}



extern "C" __global__ void __launch_bounds__(1024) direct(const int* __restrict__ row_indices, const int* __restrict__ col_indices,
        const T* __restrict__ values, const T* __restrict__ x, ACC* sums_2, int nnz, int rows, int cols) {
    alignas(16) extern __shared__ unsigned char memory[];
    ACC* found = reinterpret_cast<ACC*>(memory);
    T* kept = reinterpret_cast<T*>(found + rows);
    const int tid = threadIdx.x;
    const T* factors = x;
    for (int r = tid; r < rows; r += 1024) found[r] = 0;
    if (cols <= 16384) {
        for (int c = tid; c < cols; c += 1024) kept[c] = x[c];
        factors = kept;
    }
    __syncthreads();
    const long long step = (long long)gridDim.x * 4096;
    long long p = ((long long)blockIdx.x * 1024 + tid) * 4;
#pragma unroll 2
    for (; p + 4 <= nnz; p += step) {
        const int4 r = *reinterpret_cast<const int4*>(row_indices + p);
        const int4 c = *reinterpret_cast<const int4*>(col_indices + p);
        const Vector<4> v = *reinterpret_cast<const Vector<4>*>(values + p);
        atomicAdd(&found[r.x], load(v.v[0]) * load(factors[c.x]));
        atomicAdd(&found[r.y], load(v.v[1]) * load(factors[c.y]));
        atomicAdd(&found[r.z], load(v.v[2]) * load(factors[c.z]));
        atomicAdd(&found[r.w], load(v.v[3]) * load(factors[c.w]));
    }
    for (; p < nnz; p++) atomicAdd(&found[row_indices[p]], load(values[p]) * load(factors[col_indices[p]]));
    __syncthreads();
    sums_2 += MOST;
    for (int r = tid; r < rows; r += 1024)
        if (found[r] != 0) atomicAdd(&sums_2[r], found[r]);
}

extern "C" __global__ void __launch_bounds__(THREADS, 2) partition(const int* __restrict__ row_indices, const int* __restrict__ col_indices,
        const T* __restrict__ values, const T* __restrict__ x, ACC* sums_2, uint2* entries, int nnz, int cols, int shift, int room) {
    alignas(16) extern __shared__ unsigned char memory[];
    int* placed = reinterpret_cast<int*>(sums_2);
    sums_2 += MOST;
    uint2* staged = reinterpret_cast<uint2*>(memory);
    __shared__ int found[MOST], target[MOST], warps[THREADS / 32];
    const int tid = threadIdx.x;
    const int begin = blockIdx.x * TILE;
    const int size = min(TILE, nnz - begin);
    found[tid] = 0;

    int row[EACH];
    ACC product[EACH];
#pragma unroll
    for (int q = 0; q < EACH / 4; q++) {
        const int at = (q * THREADS + tid) * 4;
        if (at + 4 <= size) {
            const int4 r = *reinterpret_cast<const int4*>(row_indices + begin + at);
            const int4 c = *reinterpret_cast<const int4*>(col_indices + begin + at);
            const Vector<4> v = *reinterpret_cast<const Vector<4>*>(values + begin + at);
            row[4 * q] = r.x, row[4 * q + 1] = r.y, row[4 * q + 2] = r.z, row[4 * q + 3] = r.w;
            product[4 * q] = load(v.v[0]) * load(x[c.x]);
            product[4 * q + 1] = load(v.v[1]) * load(x[c.y]);
            product[4 * q + 2] = load(v.v[2]) * load(x[c.z]);
            product[4 * q + 3] = load(v.v[3]) * load(x[c.w]);
        } else {
#pragma unroll
            for (int l = 0; l < 4; l++) {
                const bool inside = at + l < size;
                row[4 * q + l] = inside ? row_indices[begin + at + l] : -1;
                product[4 * q + l] = inside ? load(values[begin + at + l]) * load(x[col_indices[begin + at + l]]) : ACC(0);
            }
        }
    }
    __syncthreads();
    int rank[EACH];
#pragma unroll
    for (int e = 0; e < EACH; e++)
        if (row[e] >= 0) rank[e] = atomicAdd(&found[row[e] >> shift], 1);
    __syncthreads();
    {
        const int one = found[tid];
        int total;
        const int before = scanned(one, warps, total);
        target[tid] = tid * room - before + (one ? atomicAdd(&placed[tid], one) : 0);
        found[tid] = before;
    }
    __syncthreads();
#pragma unroll
    for (int e = 0; e < EACH; e++)
        if (row[e] >= 0) staged[found[row[e] >> shift] + rank[e]] = make_uint2(row[e], __float_as_uint(product[e]));
    __syncthreads();
#pragma unroll 8
    for (int i = tid; i < size; i += THREADS) {
        const uint2 entry = staged[i];
        const int bucket = entry.x >> shift;
        const int at = target[bucket] + i;
        if (at - bucket * room < room)
            entries[at] = entry;
        else
            atomicAdd(&sums_2[entry.x], __uint_as_float(entry.y));
    }
}

extern "C" __global__ void __launch_bounds__(THREADS, 4) gather(const uint2* __restrict__ entries,
                                                             const ACC* sums_2, T* y, int rows, int shift, int room) {
    alignas(16) extern __shared__ unsigned char memory[];
    const int* placed = reinterpret_cast<const int*>(sums_2);
    sums_2 += MOST;
    ACC* found = reinterpret_cast<ACC*>(memory);
    const int tid = threadIdx.x, height = 1 << shift;
    const unsigned low = height - 1;
    const long long top = (long long)blockIdx.x << shift;
    for (int r = tid; r < height; r += THREADS) found[r] = top + r < rows ? sums_2[top + r] : ACC(0);
    __syncthreads();
    const int count = min(placed[blockIdx.x], room);
    const uint2* from = entries + (long long)blockIdx.x * room;
    const uint4* pairs = reinterpret_cast<const uint4*>(from);
    for (int base = tid; base < count / 2; base += 4 * THREADS) {
        uint4 two[4];
#pragma unroll
        for (int l = 0; l < 4; l++)
            if (base + l * THREADS < count / 2) two[l] = pairs[base + l * THREADS];
#pragma unroll
        for (int l = 0; l < 4; l++)
            if (base + l * THREADS < count / 2) {
                atomicAdd(&found[two[l].x & low], __uint_as_float(two[l].y));
                atomicAdd(&found[two[l].z & low], __uint_as_float(two[l].w));
            }
    }
    if (tid == 0 && count % 2) atomicAdd(&found[from[count - 1].x & low], __uint_as_float(from[count - 1].y));
    __syncthreads();
    for (int r = tid; r < height; r += THREADS)
        if (top + r < rows) y[top + r] = store(found[r]);
}

// What was added up in the accumulator's type becomes the result.
extern "C" __global__ void finish_2(const ACC* sums_2, T* y, int count) {
    const int at = blockIdx.x * 256 + threadIdx.x;
    if (at < count) y[at] = store(sums_2[512 + at]);
}
