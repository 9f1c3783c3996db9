/*! evo
[tune]
LANES = [32, 4, 8, 16]
BLOCK = [128, 64, 256, 512]
UNROLL = [4, 1, 2]
BLOCK_2 = [128, 32, 64, 256, 512, 1024]
BLOCK_3 = [128, 32, 64, 256, 512, 1024]
LONG = [96]

[[launch]]
when = "(cols * nnz <= 8692398240) and (rows <= 23170)"
kernel = "spmv_csr"
grid = ["ceil_div(rows * LANES, BLOCK)"]
block = ["BLOCK"]
args = ["row_offsets", "col_indices", "values", "x", "y", "rows"]
[[launch]]
when = "(cols * nnz <= 8692398240) and (rows > 23170)"
kernel = "spmv_csr_2"
grid = ["ceil_div(rows, BLOCK_2)"]
block = ["BLOCK_2"]
args = ["row_offsets", "col_indices", "values", "x", "y", "rows"]
[[launch]]
when = "(cols * nnz > 8692398240) and (cols * nnz <= 8692398240)"
kernel = "spmv_csr_3"
grid = ["ceil_div(rows, BLOCK_3)"]
block = ["BLOCK_3"]
args = ["row_offsets", "col_indices", "values", "x", "y", "rows"]
[[launch]]                         # long rows, x in shared memory
when = "(cols * nnz > 8692398240) and ((cols * nnz > 8692398240) and (nnz >= LONG * rows and cols * sizeof_T <= 100000))"
kernel = "long_rows<1>"
grid = ["min(ceil_div(rows, 32), 2 * sm_count)"]
block = [1024]
shared = "cols * sizeof_T"
args = ["row_offsets", "col_indices", "values", "x", "y", "rows", "cols"]

[[launch]]
when = "(cols * nnz > 8692398240) and ((cols * nnz > 8692398240) and (nnz >= LONG * rows and cols * sizeof_T > 100000))"
kernel = "long_rows<0>"
grid = ["min(ceil_div(rows, 32), 2 * sm_count)"]
block = [1024]
args = ["row_offsets", "col_indices", "values", "x", "y", "rows", "cols"]

[[launch]]                         # short rows
when = "(cols * nnz > 8692398240) and ((cols * nnz > 8692398240) and (not (nnz >= LONG * rows)))"
kernel = "short_rows"
grid = ["ceil_div(rows, 256)"]
block = [256]
shared = "8192"
args = ["row_offsets", "col_indices", "values", "x", "y", "rows"]
*/

// Some lanes of a warp share a row.
extern "C" __global__ void __launch_bounds__(BLOCK) spmv_csr(const int* row_offsets, const int* col_indices,
                                             const T* values, const T* x, T* y, int rows) {
    int lane = threadIdx.x % LANES;
    long long r = ((long long)blockIdx.x * BLOCK + threadIdx.x) / LANES;
    ACC sum = 0;
    if (r < rows) {
#pragma unroll UNROLL
        for (int p = row_offsets[r] + lane; p < row_offsets[r + 1]; p += LANES)
            sum += load(values[p]) * load(x[col_indices[p]]);
    }
    for (int offset = LANES / 2; offset > 0; offset /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, offset);
    if (r < rows && lane == 0) y[r] = store(sum);
}

// One thread per row.
extern "C" __global__ void spmv_csr_2(const int* row_offsets, const int* col_indices, const T* values, const T* x, T* y,
                                    int rows) {
    int r = blockIdx.x * blockDim.x + threadIdx.x;
    if (r >= rows) return;
    ACC sum = 0;
    for (int p = row_offsets[r]; p < row_offsets[r + 1]; p++) sum += load(values[p]) * load(x[col_indices[p]]);
    y[r] = store(sum);
}

// One thread per row.
extern "C" __global__ void spmv_csr_3(const int* row_offsets, const int* col_indices, const T* values, const T* x, T* y,
                                    int rows) {
    int r = blockIdx.x * blockDim.x + threadIdx.x;
    if (r >= rows) return;
    ACC sum = 0;
    for (int p = row_offsets[r]; p < row_offsets[r + 1]; p++) sum += load(values[p]) * load(x[col_indices[p]]);
    y[r] = store(sum);
}

// Short rows: a block computes the products of 256 rows in the order in which they lie in memory, so that reads are whole
// lines, many under way at once; then a thread adds up a row from shared memory. Long rows: a warp per row, four entries
// a lane, x gathered from shared memory.
template <int WIDE> struct alignas(WIDE * sizeof(T)) Vector { T v[WIDE]; };
constexpr int SPACE = 4096;          // products of a block at a time
constexpr int EACH = 8;              // of a thread at a time

extern "C" __global__ void __launch_bounds__(256) short_rows(const int* __restrict__ row_offsets, const int* __restrict__ col_indices,
        const T* __restrict__ values, const T* __restrict__ x, T* __restrict__ y, int rows) {
    alignas(16) extern __shared__ unsigned char memory[];
    ACC* products = reinterpret_cast<ACC*>(memory);
    const int tid = threadIdx.x;
    const int top = blockIdx.x * 256, row = top + tid;
    const int height = min(256, rows - top);
    const long long begin = row_offsets[top], end = row_offsets[top + height];
    const long long first = row < rows ? row_offsets[row] : end, last = row < rows ? row_offsets[row + 1] : end;
    // Columns and values are read while the products before are added up; nothing hangs on what is gathered: behind
    // branches loads of 16 bits would wait for each other.
    constexpr int CHUNK = 256 * EACH;
    int id[EACH];
    T factor[EACH];
    const auto ahead = [&](long long done) {
        if (end - done >= CHUNK) {
#pragma unroll
            for (int e = 0; e < EACH; e++) id[e] = __ldcs(col_indices + done + tid + e * 256);
#pragma unroll
            for (int e = 0; e < EACH; e++) factor[e] = values[done + tid + e * 256];
        } else {
#pragma unroll
            for (int e = 0; e < EACH; e++) {
                const bool inside = done + tid + e * 256 < end;
                id[e] = inside ? col_indices[done + tid + e * 256] : -1;
                factor[e] = inside ? values[done + tid + e * 256] : store(ACC(0));
            }
        }
    };
    ACC sum = 0;
    if (begin < end) ahead(begin);
    for (long long done = begin; done < end; done += CHUNK) {
        T other[EACH];
#pragma unroll
        for (int e = 0; e < EACH; e++) other[e] = x[max(id[e], 0)];
#pragma unroll
        for (int e = 0; e < EACH; e++)
            products[tid + e * 256] = __uint_as_float(__float_as_uint(load(factor[e]) * load(other[e])) & ~(unsigned)(id[e] >> 31));
        if (done + CHUNK < end) ahead(done + CHUNK);
        __syncthreads();
        const int from = (int)max(first - done, 0ll), until = (int)min(last - done, (long long)CHUNK);
        for (int i = from; i < until; i++) sum += products[i];
        __syncthreads();
    }
    if (row < rows) y[row] = store(sum);
}

template <int KEPT> __global__ void __launch_bounds__(1024, 2) long_rows(const int* __restrict__ row_offsets, const int* __restrict__ col_indices,
        const T* __restrict__ values, const T* __restrict__ x, T* __restrict__ y, int rows, int cols) {
    alignas(16) extern __shared__ unsigned char memory[];
    T* kept = reinterpret_cast<T*>(memory);
    const int tid = threadIdx.x, lane = tid % 32;
    const T* from = x;
    if constexpr (KEPT != 0) {
        const int whole = cols / (16 / (int)sizeof(T));
        for (int c = tid; c < whole; c += 1024) reinterpret_cast<uint4*>(memory)[c] = reinterpret_cast<const uint4*>(x)[c];
        for (int c = whole * (16 / (int)sizeof(T)) + tid; c < cols; c += 1024) kept[c] = x[c];
        __syncthreads();
        from = kept;
    }
    for (int row = tid / 32 * gridDim.x + blockIdx.x; row < rows; row += gridDim.x * 32) {
        const long long begin = row_offsets[row], end = row_offsets[row + 1];
        const long long whole = min((begin + 3) / 4 * 4, end);
        ACC sums[4] = {};
        if (begin + lane < whole) {
            const int id = col_indices[begin + lane];
            if (id >= 0) sums[0] = load(values[begin + lane]) * load(from[id]);
        }
        long long p = whole + 4 * lane;
        for (; p + 128 + 4 <= end; p += 256) {
            const int4 c = *reinterpret_cast<const int4*>(col_indices + p), d = *reinterpret_cast<const int4*>(col_indices + p + 128);
            const Vector<4> v = *reinterpret_cast<const Vector<4>*>(values + p), w = *reinterpret_cast<const Vector<4>*>(values + p + 128);
            sums[0] += load(v.v[0]) * load(from[c.x]);
            sums[1] += load(v.v[1]) * load(from[c.y]);
            sums[2] += load(v.v[2]) * load(from[c.z]);
            sums[3] += load(v.v[3]) * load(from[c.w]);
            sums[0] += load(w.v[0]) * load(from[d.x]);
            sums[1] += load(w.v[1]) * load(from[d.y]);
            sums[2] += load(w.v[2]) * load(from[d.z]);
            sums[3] += load(w.v[3]) * load(from[d.w]);
        }
        for (; p < end; p += 128)
#pragma unroll
            for (int l = 0; l < 4; l++)
                if (p + l < end) {
                    const int id = col_indices[p + l];
                    if (id >= 0) sums[l] += load(values[p + l]) * load(from[id]);
                }
        ACC sum = (sums[0] + sums[1]) + (sums[2] + sums[3]);
#pragma unroll
        for (int offset = 16; offset > 0; offset /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, offset);
        if (lane == 0) y[row] = store(sum);
    }
}
