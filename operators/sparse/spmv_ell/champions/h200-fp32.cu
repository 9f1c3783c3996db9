/*! evo
[tune]
LONG = [96]                        # slots from which on a warp takes a row
SPACE = [2048, 4096, 1024]         # products of a block at a time; what they leave of shared memory caches x
EACH = [8, 4, 16]                  # of a thread at a time
LANES = [32, 4, 8, 16]
BLOCK = [128, 64, 256, 512]
UNROLL = [4, 1, 2]
LONG_2 = [96]
SPACE_2 = [2048, 4096, 1024]
EACH_2 = [8, 4, 16]

[[launch]]                         # long rows, x in shared memory
when = "(cols * slots > 1333233) and (slots >= LONG and cols * sizeof_T <= 100000)"
kernel = "long_rows<1>"
grid = ["min(ceil_div(rows, 32), 2 * sm_count)"]
block = [1024]
shared = "cols * sizeof_T"
args = ["col_ids", "slots", "values", "x", "y", "rows", "cols"]

[[launch]]
when = "(cols * slots > 1333233) and (slots >= LONG and cols * sizeof_T > 100000)"
kernel = "long_rows<0>"
grid = ["min(ceil_div(rows, 32), 2 * sm_count)"]
block = [1024]
args = ["col_ids", "slots", "values", "x", "y", "rows", "cols"]

[[launch]]                         # short rows
when = "(cols * slots > 1333233) and (not (slots >= LONG))"
kernel = "short_rows"
grid = ["ceil_div(rows, 256)"]
block = [256]
shared = "4 * SPACE"
args = ["col_ids", "slots", "values", "x", "y", "rows"]
[[launch]]
when = "(cols * slots <= 1333233) and (rows * slots <= 3662567)"
kernel = "spmv_ell"
grid = ["ceil_div(rows * LANES, BLOCK)"]
block = ["BLOCK"]
args = ["col_ids", "values", "x", "y", "rows", "slots"]
[[launch]]                         # long rows, x in shared memory
when = "(cols * slots <= 1333233) and ((rows * slots > 3662567) and (slots >= LONG_2 and cols * sizeof_T <= 100000))"
kernel = "long_rows_2<1>"
grid = ["min(ceil_div(rows, 32), 2 * sm_count)"]
block = [1024]
shared = "cols * sizeof_T"
args = ["col_ids", "slots", "values", "x", "y", "rows", "cols"]

[[launch]]
when = "(cols * slots <= 1333233) and ((rows * slots > 3662567) and (slots >= LONG_2 and cols * sizeof_T > 100000))"
kernel = "long_rows_2<0>"
grid = ["min(ceil_div(rows, 32), 2 * sm_count)"]
block = [1024]
args = ["col_ids", "slots", "values", "x", "y", "rows", "cols"]

[[launch]]                         # short rows
when = "(cols * slots <= 1333233) and ((rows * slots > 3662567) and (not (slots >= LONG_2)))"
kernel = "short_rows_2"
grid = ["ceil_div(rows, 256)"]
block = [256]
shared = "4 * SPACE_2"
args = ["col_ids", "slots", "values", "x", "y", "rows"]
*/
// Short rows: a block computes the products of 256 rows in the order in which they lie in memory, so that reads are whole
// lines, many under way at once; then a thread adds up a row from shared memory. Long rows: a warp per row, four entries
// a lane, x gathered from shared memory.
struct alignas(4 * sizeof(T)) Four { T v[4]; };

// Four entries at p, a multiple of 4; -1 for what lies outside. Values come with the columns, not after them.
__device__ __forceinline__ void fetch(const int* __restrict__ ids, const T* __restrict__ values, int p, int begin, int end,
                                      int (&id)[4], T (&value)[4]) {
    if (p >= begin && p + 4 <= end) {
        const int4 c = __ldcs(reinterpret_cast<const int4*>(ids + p));
        const Four v = *reinterpret_cast<const Four*>(values + p);
        id[0] = c.x, id[1] = c.y, id[2] = c.z, id[3] = c.w;
#pragma unroll
        for (int l = 0; l < 4; l++) value[l] = v.v[l];
    } else {
#pragma unroll
        for (int l = 0; l < 4; l++) {
            const bool inside = p + l >= begin && p + l < end;
            id[l] = inside ? ids[p + l] : -1;
            value[l] = inside ? values[p + l] : T(0.0f);
        }
    }
}

extern "C" __global__ void __launch_bounds__(256) short_rows(const int* __restrict__ col_ids, int slots,
        const T* __restrict__ values, const T* __restrict__ x, T* __restrict__ y, int rows) {
    alignas(16) extern __shared__ unsigned char memory[];
    ACC* products = reinterpret_cast<ACC*>(memory);
    const int tid = threadIdx.x;
    const int top = blockIdx.x * 256, row = top + tid;
    const int height = min(256, rows - top);
    const long long begin = (long long)(top) * slots, end = (long long)(top + height) * slots;
    const long long first = row < rows ? (long long)(row) * slots : end, last = row < rows ? (long long)(row + 1) * slots : end;
    ACC sum = 0;
    for (long long done = begin; done < end; done += SPACE) {
        const int size = (int)min((long long)SPACE, end - done);
        const int* ids = col_ids + done;
        const T* factors = values + done;
        for (int base = tid; base < size; base += 256 * EACH) {
            int id[EACH];
            T factor[EACH], other[EACH];
#pragma unroll
            for (int e = 0; e < EACH; e++) id[e] = base + e * 256 < size ? __ldcs(ids + base + e * 256) : -1;
#pragma unroll
            for (int e = 0; e < EACH; e++)
                if (id[e] >= 0) {
                    factor[e] = factors[base + e * 256];
                    other[e] = x[id[e]];
                }
#pragma unroll
            for (int e = 0; e < EACH; e++)
                if (base + e * 256 < size) products[base + e * 256] = id[e] >= 0 ? load(factor[e]) * load(other[e]) : ACC(0);
        }
        __syncthreads();
        const int from = (int)max(first - done, 0ll), until = (int)min(last - done, (long long)size);
        for (int i = from; i < until; i++) sum += products[i];
        __syncthreads();
    }
    if (row < rows) y[row] = store(sum);
}

template <int KEPT> __global__ void __launch_bounds__(1024, 2) long_rows(const int* __restrict__ col_ids, int slots,
        const T* __restrict__ values, const T* __restrict__ x, T* __restrict__ y, int rows, int cols) {
    alignas(16) extern __shared__ unsigned char memory[];
    T* kept = reinterpret_cast<T*>(memory);
    const int tid = threadIdx.x, lane = tid % 32;
    const T* from = x;
    int row = tid / 32 * gridDim.x + blockIdx.x;
    long long begin = 0, end = 0;
    if (row < rows) begin = (long long)(row) * slots, end = (long long)(row + 1) * slots;
    if constexpr (KEPT != 0) {
        constexpr int WIDE = 16 / sizeof(T);
        for (int c = tid; c < cols / WIDE; c += 1024) reinterpret_cast<uint4*>(memory)[c] = reinterpret_cast<const uint4*>(x)[c];
        for (int c = cols / WIDE * WIDE + tid; c < cols; c += 1024) kept[c] = x[c];
        __syncthreads();
        from = kept;
    }
    while (row < rows) {
        ACC sums[2] = {};
        const int* ids = col_ids + (begin & -4);
        const T* factors = values + (begin & -4);
        const int first = (int)(begin & 3), last = first + (int)(end - begin);
        for (int p = 4 * lane; p < last; p += 256) {
            int c[4], d[4];
            T v[4], w[4];
            fetch(ids, factors, p, first, last, c, v);
            fetch(ids, factors, p + 128, first, last, d, w);
#pragma unroll
            for (int l = 0; l < 4; l++) sums[l % 2] += c[l] >= 0 ? load(v[l]) * load(from[c[l]]) : ACC(0);
#pragma unroll
            for (int l = 0; l < 4; l++) sums[l % 2] += d[l] >= 0 ? load(w[l]) * load(from[d[l]]) : ACC(0);
            if (d[3] < 0) break;  // what pads the row ends it
        }
        ACC sum = sums[0] + sums[1];
#pragma unroll
        for (int offset = 16; offset > 0; offset /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, offset);
        if (lane == 0) y[row] = store(sum);
        row += gridDim.x * 32;
        if (row < rows) begin = (long long)(row) * slots, end = (long long)(row + 1) * slots;
    }
}

// Some lanes of a warp share a row.
extern "C" __global__ void __launch_bounds__(BLOCK) spmv_ell(const int* col_ids, const T* values, const T* x, T* y,
                                             int rows, int slots) {
    int lane = threadIdx.x % LANES;
    long long r = ((long long)blockIdx.x * BLOCK + threadIdx.x) / LANES;
    ACC sum = 0;
    if (r < rows) {
#pragma unroll UNROLL
        for (int s = lane; s < slots; s += LANES)
            sum += col_ids[r * slots + s] < 0 ? ACC(0) : load(values[r * slots + s]) * load(x[col_ids[r * slots + s]]);
    }
    for (int offset = LANES / 2; offset > 0; offset /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, offset);
    if (r < rows && lane == 0) y[r] = store(sum);
}

// Short rows: a block computes the products of 256 rows in the order in which they lie in memory, so that reads are whole
// lines, many under way at once; then a thread adds up a row from shared memory. Long rows: a warp per row, four entries
// a lane, x gathered from shared memory.
struct alignas(4 * sizeof(T)) Four_2 { T v[4]; };

// Four_2 entries at p, a multiple of 4; -1 for what lies outside. Values come with the columns, not after them.
__device__ __forceinline__ void fetch_2(const int* __restrict__ ids, const T* __restrict__ values, int p, int begin, int end,
                                      int (&id)[4], T (&value)[4]) {
    if (p >= begin && p + 4 <= end) {
        const int4 c = __ldcs(reinterpret_cast<const int4*>(ids + p));
        const Four_2 v = *reinterpret_cast<const Four_2*>(values + p);
        id[0] = c.x, id[1] = c.y, id[2] = c.z, id[3] = c.w;
#pragma unroll
        for (int l = 0; l < 4; l++) value[l] = v.v[l];
    } else {
#pragma unroll
        for (int l = 0; l < 4; l++) {
            const bool inside = p + l >= begin && p + l < end;
            id[l] = inside ? ids[p + l] : -1;
            value[l] = inside ? values[p + l] : T(0.0f);
        }
    }
}

extern "C" __global__ void __launch_bounds__(256) short_rows_2(const int* __restrict__ col_ids, int slots,
        const T* __restrict__ values, const T* __restrict__ x, T* __restrict__ y, int rows) {
    alignas(16) extern __shared__ unsigned char memory[];
    ACC* products = reinterpret_cast<ACC*>(memory);
    const int tid = threadIdx.x;
    const int top = blockIdx.x * 256, row = top + tid;
    const int height = min(256, rows - top);
    const long long begin = (long long)(top) * slots, end = (long long)(top + height) * slots;
    const long long first = row < rows ? (long long)(row) * slots : end, last = row < rows ? (long long)(row + 1) * slots : end;
    ACC sum = 0;
    for (long long done = begin; done < end; done += SPACE_2) {
        const int size = (int)min((long long)SPACE_2, end - done);
        const int* ids = col_ids + done;
        const T* factors = values + done;
        for (int base = tid; base < size; base += 256 * EACH_2) {
            int id[EACH_2];
            T factor[EACH_2], other[EACH_2];
#pragma unroll
            for (int e = 0; e < EACH_2; e++) id[e] = base + e * 256 < size ? __ldcs(ids + base + e * 256) : -1;
#pragma unroll
            for (int e = 0; e < EACH_2; e++)
                if (id[e] >= 0) {
                    factor[e] = factors[base + e * 256];
                    other[e] = x[id[e]];
                }
#pragma unroll
            for (int e = 0; e < EACH_2; e++)
                if (base + e * 256 < size) products[base + e * 256] = id[e] >= 0 ? load(factor[e]) * load(other[e]) : ACC(0);
        }
        __syncthreads();
        const int from = (int)max(first - done, 0ll), until = (int)min(last - done, (long long)size);
        for (int i = from; i < until; i++) sum += products[i];
        __syncthreads();
    }
    if (row < rows) y[row] = store(sum);
}

template <int KEPT> __global__ void __launch_bounds__(1024, 2) long_rows_2(const int* __restrict__ col_ids, int slots,
        const T* __restrict__ values, const T* __restrict__ x, T* __restrict__ y, int rows, int cols) {
    alignas(16) extern __shared__ unsigned char memory[];
    T* kept = reinterpret_cast<T*>(memory);
    const int tid = threadIdx.x, lane = tid % 32;
    const T* from = x;
    int row = tid / 32 * gridDim.x + blockIdx.x;
    long long begin = 0, end = 0;
    if (row < rows) begin = (long long)(row) * slots, end = (long long)(row + 1) * slots;
    if constexpr (KEPT != 0) {
        constexpr int WIDE = 16 / sizeof(T);
        for (int c = tid; c < cols / WIDE; c += 1024) reinterpret_cast<uint4*>(memory)[c] = reinterpret_cast<const uint4*>(x)[c];
        for (int c = cols / WIDE * WIDE + tid; c < cols; c += 1024) kept[c] = x[c];
        __syncthreads();
        from = kept;
    }
    while (row < rows) {
        ACC sums[2] = {};
        const int* ids = col_ids + (begin & -4);
        const T* factors = values + (begin & -4);
        const int first = (int)(begin & 3), last = first + (int)(end - begin);
        for (int p = 4 * lane; p < last; p += 256) {
            int c[4], d[4];
            T v[4], w[4];
            fetch_2(ids, factors, p, first, last, c, v);
            fetch_2(ids, factors, p + 128, first, last, d, w);
#pragma unroll
            for (int l = 0; l < 4; l++) sums[l % 2] += c[l] >= 0 ? load(v[l]) * load(from[c[l]]) : ACC(0);
#pragma unroll
            for (int l = 0; l < 4; l++) sums[l % 2] += d[l] >= 0 ? load(w[l]) * load(from[d[l]]) : ACC(0);
            if (d[3] < 0) break;  // what pads the row ends it
        }
        ACC sum = sums[0] + sums[1];
#pragma unroll
        for (int offset = 16; offset > 0; offset /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, offset);
        if (lane == 0) y[row] = store(sum);
        row += gridDim.x * 32;
        if (row < rows) begin = (long long)(row) * slots, end = (long long)(row + 1) * slots;
    }
}
