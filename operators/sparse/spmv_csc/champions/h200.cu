/*! evo
deterministic = false
zero = [{ name = "placed", when = "rows > DIRECT" }, { name = "y", when = "(rows <= DIRECT or rows > BUCKETS * 32768) and sizeof_T == 4" }, { name = "sums", when = "(rows <= DIRECT or rows > BUCKETS * 32768) and sizeof_T != 4" }]

[tune]
DIRECT = [24576]                   # rows whose sums fit into every block's shared memory
BUCKETS = [256, 128, 512]          # of consecutive rows
THREADS = [512, 1024]
EACH = [8, 16]                     # entries of a thread of `partition`

[let]
shift = "min(15, ceil_log2(ceil_div(rows, BUCKETS)))"
room = "nnz * 2 ** shift // rows // 64 * 80 + 1024" # a quarter more than evenly; multiples of 16
direct = "rows <= DIRECT"
bucketed = "rows > DIRECT and rows <= BUCKETS * 32768"

[[buffer]]                         # sums in 16 bits would round on the way
name = "sums"
dtype = "ACC"
shape = ["1 if bucketed or sizeof_T == 4 else rows"]

[[buffer]]                         # entries in each bucket, then those that found no room
name = "placed"
dtype = "int32"
shape = ["BUCKETS + 1"]

[[buffer]]
name = "products"
dtype = "ACC"
shape = ["BUCKETS * room if bucketed else 4"]

[[buffer]]                         # 16 bits each: the row within its bucket
name = "locals"
dtype = "int32"
shape = ["BUCKETS * room // 2 if bucketed else 4"]

[[buffer]]                         # row and product of what found no room
name = "spilled"
dtype = "int32"
shape = ["2 * nnz + 2 if bucketed else 4"]

[[launch]]
kernel = "direct"
when = "rows <= DIRECT"
grid = ["max(1, min(max(ceil_div(nnz, 8192), ceil_div(cols, 64)), 2 * sm_count))"]
block = [1024]
shared = "4 * rows"
args = ["col_offsets", "row_indices", "values", "x", "y if sizeof_T == 4 else sums", "rows", "cols"]

[[launch]]
kernel = "scatter"
when = "rows > BUCKETS * 32768"
grid = ["min(ceil_div(cols, 16), 16 * sm_count)"]
block = [512]
args = ["col_offsets", "row_indices", "values", "x", "y if sizeof_T == 4 else sums", "cols"]

[[launch]]
kernel = "finish"
when = "not bucketed and sizeof_T != 4"
grid = ["ceil_div(rows, 256)"]
block = [256]
args = ["sums", "y", "rows"]

[[launch]]
kernel = "partition"
when = "bucketed"
grid = ["max(1, ceil_div(nnz, THREADS * EACH))"]
block = ["THREADS"]
shared = "THREADS * EACH * 8"
args = ["col_offsets", "row_indices", "values", "x", "placed", "products", "locals", "spilled", "nnz", "cols", "shift", "room"]

[[launch]]
kernel = "collect"
when = "bucketed"
overlap = true
grid = ["ceil_div(rows, 2 ** shift)"]
block = [1024]
shared = "4 * 2 ** shift"
args = ["placed", "products", "locals", "spilled", "y", "BUCKETS", "rows", "shift", "room"]
*/
// A column's x is read once, so nothing is gathered; what costs is that sums lie anywhere. With few rows every block adds
// up in shared memory. Else products go to buckets of consecutive rows, tile by tile through shared memory so that they
// are written in runs, in 6 bytes (product, 16 bits of row); then a block adds up a bucket in shared memory.
constexpr int TILE = THREADS * EACH;
constexpr int MOST_AT_ONCE = EACH > 8 ? 1024 : 1536;  // threads of a multiprocessor that the registers are meant for

struct alignas(4 * sizeof(T)) Four { T v[4]; };

// Sum of the values of all threads before this one.
__device__ __forceinline__ int before(int value, int* warps) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    int sum = value;
#pragma unroll
    for (int d = 1; d < 32; d *= 2) {
        const int other = __shfl_up_sync(0xffffffffu, sum, d);
        if (lane >= d) sum += other;
    }
    if (lane == 31) warps[warp] = sum;
    __syncthreads();
    int earlier = 0;
#pragma unroll
    for (int w = 0; w < THREADS / 32; w++) earlier += w < warp ? warps[w] : 0;
    return earlier + sum - value;
}

// The last column that begins at p or before, found by a warp: 32 probes at a time.
__device__ __forceinline__ int column_of(const int* __restrict__ col_offsets, int cols, int p) {
    int low = 0, high = cols;  // col_offsets[low] <= p < col_offsets[high]
    while (high - low > 1) {
        const int step = (high - low + 32) / 33;
        const int probe = (int)min((long long)low + (long long)(threadIdx.x % 32 + 1) * step, (long long)high);
        const int count = __popc(__ballot_sync(0xffffffffu, probe < high && col_offsets[probe] <= p));
        high = (int)min((long long)low + (long long)(count + 1) * step, (long long)high);
        low += count * step;
    }
    return low;
}

extern "C" __global__ void __launch_bounds__(1024) direct(const int* __restrict__ col_offsets, const int* __restrict__ row_indices,
        const T* __restrict__ values, const T* __restrict__ x, ACC* sums, int rows, int cols) {
    alignas(16) extern __shared__ unsigned char memory[];
    ACC* found = reinterpret_cast<ACC*>(memory);
    const int tid = threadIdx.x;
    for (int r = tid; r < rows; r += 1024) found[r] = 0;
    __syncthreads();
    for (int c = tid / 32 * gridDim.x + blockIdx.x; c < cols; c += gridDim.x * 32) {
        const int end = col_offsets[c + 1];
        const ACC factor = load(x[c]);
        for (int p = col_offsets[c] + tid % 32; p < end; p += 8 * 32) {
            int row[8];
            T value[8];
#pragma unroll
            for (int a = 0; a < 8; a++) {
                row[a] = p + a * 32 < end ? __ldcs(row_indices + p + a * 32) : -1;
                if (p + a * 32 < end) value[a] = values[p + a * 32];
            }
#pragma unroll
            for (int a = 0; a < 8; a++)
                if (row[a] >= 0) atomicAdd(&found[row[a]], load(value[a]) * factor);
        }
    }
    __syncthreads();
    const int shifted = (int)((long long)blockIdx.x * rows / gridDim.x);  // blocks begin at different places
    for (int i = tid; i < rows; i += 1024) {
        const int r = i + shifted < rows ? i + shifted : i + shifted - rows;
        if (found[r] != 0) atomicAdd(&sums[r], found[r]);
    }
}

// More rows than buckets can hold.
extern "C" __global__ void scatter(const int* __restrict__ col_offsets, const int* __restrict__ row_indices,
        const T* __restrict__ values, const T* __restrict__ x, ACC* sums, int cols) {
    for (long long c = (long long)blockIdx.x * 16 + threadIdx.x / 32; c < cols; c += gridDim.x * 16) {
        const int end = col_offsets[c + 1];
        const ACC factor = load(x[c]);
        for (int p = col_offsets[c] + threadIdx.x % 32; p < end; p += 32) atomicAdd(&sums[row_indices[p]], load(values[p]) * factor);
    }
}

extern "C" __global__ void finish(const ACC* sums, T* y, int count) {
    const int at = blockIdx.x * 256 + threadIdx.x;
    if (at < count) y[at] = store(sums[at]);
}

extern "C" __global__ void __launch_bounds__(THREADS, MOST_AT_ONCE / THREADS) partition(const int* __restrict__ col_offsets,
        const int* __restrict__ row_indices, const T* __restrict__ values, const T* __restrict__ x, int* placed, ACC* products,
        int* kept, uint2* spilled, int nnz, int cols, int shift, int room) {
    alignas(16) extern __shared__ unsigned char memory[];
    unsigned short* locals = reinterpret_cast<unsigned short*>(kept);
    uint2* staged = reinterpret_cast<uint2*>(memory);
    ACC* factor = reinterpret_cast<ACC*>(memory);  // x for every entry of the tile, before anything is staged
    __shared__ int found[BUCKETS], target[BUCKETS], warps[32], span[2];
    const int tid = threadIdx.x, lane = tid % 32;
    const int begin = blockIdx.x * TILE;
    const int size = min(TILE, nnz - begin);
    if (tid < BUCKETS) found[tid] = 0;

    // Loads are under way while the columns are looked for.
    int row[EACH];
    ACC product[EACH];
#pragma unroll
    for (int q = 0; q < EACH / 4; q++) {
        const int at = (q * THREADS + tid) * 4;
        if (at + 4 <= size) {
            const int4 r = __ldcs(reinterpret_cast<const int4*>(row_indices + begin + at));
            const Four v = *reinterpret_cast<const Four*>(values + begin + at);
            row[4 * q] = r.x, row[4 * q + 1] = r.y, row[4 * q + 2] = r.z, row[4 * q + 3] = r.w;
#pragma unroll
            for (int l = 0; l < 4; l++) product[4 * q + l] = load(v.v[l]);
        } else {
#pragma unroll
            for (int l = 0; l < 4; l++) {
                row[4 * q + l] = at + l < size ? row_indices[begin + at + l] : -1;
                product[4 * q + l] = at + l < size ? load(values[begin + at + l]) : ACC(0);
            }
        }
    }
    if (size > 0) {
        if (tid < 64) {
            const int there = column_of(col_offsets, cols, tid < 32 ? begin : begin + size - 1);
            if (lane == 0) span[tid / 32] = there;
        }
        __syncthreads();
        const int until = span[1];
        for (int base = span[0] + tid / 32 * 32; base <= until; base += THREADS) {
            const int c = base + lane;
            const int from = c <= until ? max(col_offsets[c] - begin, 0) : 0, stop = c <= until ? min(col_offsets[c + 1] - begin, size) : 0;
            const ACC there = c <= until ? load(x[c]) : ACC(0);
            if (stop - from <= 64)
                for (int i = from; i < stop; i++) factor[i] = there;
            for (unsigned longer = __ballot_sync(0xffffffffu, stop - from > 64); longer; longer &= longer - 1) {
                const int source = __ffs(longer) - 1;
                const int first = __shfl_sync(0xffffffffu, from, source), last = __shfl_sync(0xffffffffu, stop, source);
                const ACC same = __shfl_sync(0xffffffffu, there, source);
                for (int i = first + lane; i < last; i += 32) factor[i] = same;
            }
        }
        __syncthreads();
    }

    int rank[EACH];
#pragma unroll
    for (int e = 0; e < EACH; e++)
        if (row[e] >= 0) {
            product[e] *= factor[(e / 4 * THREADS + tid) * 4 + e % 4];
            rank[e] = atomicAdd(&found[row[e] >> shift], 1);
        }
    __syncthreads();
    const int own = tid < BUCKETS ? found[tid] : 0;
    const int mine = own ? atomicAdd(&placed[tid], own) : 0;  // under way until the tile is staged
    const int earlier = before(own, warps);
    if (tid < BUCKETS) found[tid] = earlier;
    __syncthreads();
#pragma unroll
    for (int e = 0; e < EACH; e++)
        if (row[e] >= 0) staged[found[row[e] >> shift] + rank[e]] = make_uint2(row[e], __float_as_uint(product[e]));
    if (tid < BUCKETS) target[tid] = mine - earlier;
    __syncthreads();
    cudaTriggerProgrammaticLaunchCompletion();
#pragma unroll 4
    for (int i = tid; i < size; i += THREADS) {
        const uint2 entry = staged[i];
        const int bucket = entry.x >> shift, at = target[bucket] + i;
        if (at < room) {
            products[(long long)bucket * room + at] = __uint_as_float(entry.y);
            locals[(long long)bucket * room + at] = (unsigned short)(entry.x & ((1u << shift) - 1));
        } else
            spilled[atomicAdd(&placed[BUCKETS], 1)] = entry;
    }
}

// Backwards: what was written last is still in the cache. (No __restrict__: nothing may be read before the wait.)
extern "C" __global__ void __launch_bounds__(1024, 2) collect(const int* placed, const ACC* products,
        const int* kept, const uint2* spilled, T* y, int buckets, int rows, int shift, int room) {
    alignas(16) extern __shared__ unsigned char memory[];
    ACC* found = reinterpret_cast<ACC*>(memory);
    const int tid = threadIdx.x, height = 1 << shift;
    const long long top = (long long)blockIdx.x << shift;
    for (int r = tid; r < height; r += 1024) found[r] = 0;
    cudaGridDependencySynchronize();
    __syncthreads();
    const int count = min(placed[blockIdx.x], room), fours = count / 4, extra = placed[buckets];
    products += (long long)blockIdx.x * room;
    const unsigned short* locals = reinterpret_cast<const unsigned short*>(kept) + (long long)blockIdx.x * room;
    for (int base = fours - 1 - tid; base >= 0; base -= 2 * 1024) {
        float4 p[2];
        ushort4 r[2];
#pragma unroll
        for (int u = 0; u < 2; u++)
            if (base - u * 1024 >= 0) {
                p[u] = __ldcs(reinterpret_cast<const float4*>(products) + base - u * 1024);
                r[u] = __ldcs(reinterpret_cast<const ushort4*>(locals) + base - u * 1024);
            }
#pragma unroll
        for (int u = 0; u < 2; u++)
            if (base - u * 1024 >= 0) {
                atomicAdd(&found[r[u].x], p[u].x);
                atomicAdd(&found[r[u].y], p[u].y);
                atomicAdd(&found[r[u].z], p[u].z);
                atomicAdd(&found[r[u].w], p[u].w);
            }
    }
    if (tid < count % 4) atomicAdd(&found[locals[fours * 4 + tid]], products[fours * 4 + tid]);
    for (int base = tid / 32 * 32; base < extra; base += 1024) {  // mostly of one long row: what lanes share is summed first
        const int i = base + tid % 32;
        const uint2 entry = i < extra ? spilled[i] : make_uint2(0, 0);
        const bool here = i < extra && entry.x >> shift == blockIdx.x;
        const unsigned any = __ballot_sync(0xffffffffu, here);
        if (!any) continue;
        const unsigned shared_row = __shfl_sync(0xffffffffu, entry.x, __ffs(any) - 1);
        const bool alike = here && entry.x == shared_row;
        ACC sum = alike ? __uint_as_float(entry.y) : ACC(0);
#pragma unroll
        for (int d = 16; d; d /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, d);
        if (tid % 32 == 0) atomicAdd(&found[shared_row & (height - 1)], sum);
        if (here && !alike) atomicAdd(&found[entry.x & (height - 1)], __uint_as_float(entry.y));
    }
    __syncthreads();
    for (int r = tid; r < height; r += 1024)
        if (top + r < rows) y[top + r] = store(found[r]);
}
