/*! evo
deterministic = false
zero = [{ name = "state", when = "not few" }]
requires = "ceil_log2(cols + 1) + ceil_log2(ceil_div(rows, 1024)) <= 32 and rows <= 4096 * 1024"

[tune]
DEEP = [824, 688, 512]             # rows of x in a block at most
ENOUGH = [118, 60]                 # tiles that fill the device
FEW = [100000, 50000]              # entries that every thread block of `gathered` may look through
CREWS = [64, 128]                  # so many thread blocks do
AHEAD = [8, 4]
LONG = [128]                       # entries a row from which on x is worth being walked through in tiles of columns,
LEAST = [4096]                     # with so many rows
NARROW = [512]                     # columns of y up to which rows of x are read from L2, in 32 bits
TALL = [32768]                     # rows up to which they are not, in 16 bits

[let]
wide = "8 * (16 // sizeof_T)"              # columns of y in a tile: 128 bytes
crew = "128 if sizeof_T == 4 else 64"      # groups of 8 lanes in a block
slabs = "ceil_div(k, wide)"
each = "8 if rows > 4 * crew and slabs * ceil_div(rows, 8 * crew) >= ENOUGH else 4 if rows > 2 * crew and slabs * ceil_div(rows, 4 * crew) >= ENOUGH else 2 if rows > crew and slabs * ceil_div(rows, 2 * crew) >= ENOUGH else 1"  # rows of a group
blocks = "ceil_div(cols, DEEP)"            # of rows of x, which lie in shared memory
deep = "ceil_div(ceil_div(cols, blocks), 8) * 8"
shift = "ceil_log2(ceil_div(rows, 1024))"
by_tiles = "(k % (16 // sizeof_T) == 0 and k <= 16 * (16 // sizeof_T) and rows <= 8192 and rows >= LEAST and nnz >= LONG * rows)"
blockable = "k % (16 // sizeof_T) == 0 and blocks <= 64 and (nnz * each * crew >= 4 * rows * cols or (rows <= 2 * each * crew and nnz >= 2 * cols)) and nnz >= 4 * rows and nnz * k >= 16000000 and ceil_div(rows, CREWS) * blocks <= 8192 and 2 ** shift * blocks <= 8192"
plain = "(k <= NARROW if sizeof_T == 4 else by_tiles or (blockable and rows > TALL))" # rows of x come from L2 there, and none of y is shared out
worth = "blockable and not plain"
few = "worth and nnz <= FEW"
chunk = "min(18000, nnz * 2 ** ceil_log2(ceil_div(rows, 1024)) // rows * 9 // 8 + 256)"
buckets = "ceil_div(rows, 2 ** shift)"
most = "2 * chunk"                         # entries of a bucket that one thread block takes; others are shared out
helpers = "min(2 * sm_count, ceil_div(nnz, most))"  # thread blocks that take parts of buckets
most_tiled = "max(8192, 2 * (nnz * 64 // rows))"
most_span = "max(256, 4 * (nnz // (rows * blocks)))"  # entries of a row and a block that eight lanes take

[[buffer]]                         # where the entries of a row and a block of columns begin
name = "bounds"
dtype = "int32"
shape = ["rows if worth else 1", "(blocks + 1) if worth else 1"]

[[buffer]]                         # those of a row by block: place of the row of x in the block, in bytes, and value
name = "sorted"
dtype = "int32"
shape = ["2 * nnz + 2 if worth else 1"]


[[buffer]]                         # entries per bucket of rows, how many of them are placed, and parts that are added
name = "state"
dtype = "int32"
shape = ["3 * 2048"]

[[buffer]]                         # where each bucket begins
name = "starts"
dtype = "int32"
shape = ["2049"]

[[buffer]]                         # entries by bucket: column and row in the bucket, value
name = "entries"
dtype = "int32"
shape = ["2 * nnz + 4"]

[[buffer]]                         # used only where a bucket holds far more entries than on average
name = "sums"
dtype = "ACC"
shape = ["1 if worth else rows * k"]

[[launch]]
kernel = "count"
when = "not few"
grid = ["max(1, min(ceil_div(nnz, 8192), 2 * sm_count))"]
block = [1024]
args = ["row_indices", "col_indices", "state", "nnz", "6 if not worth and by_tiles else shift", "ceil_log2(ceil_div(cols, 16)) if not worth and by_tiles else 31", "16 if not worth and by_tiles else 1"]

[[launch]]
kernel = "partition"
when = "not few"
grid = ["max(1, ceil_div(nnz, 8192))"]
block = [512]
shared = "8192 * 10"
args = ["row_indices", "col_indices", "values", "state", "starts", "entries", "nnz", "6 if not worth and by_tiles else shift", "ceil_log2(ceil_div(cols, 16)) if not worth and by_tiles else 31", "16 if not worth and by_tiles else 1", "sums", "rows", "k", "0 if worth or plain else most_tiled if by_tiles else most"]

[[launch]]
kernel = "product<LANES, 1>"
when = "not worth and not plain and k % (16 // sizeof_T) == 0 and not by_tiles"
grid = ["buckets + helpers", "ceil_div(k, 1024)"]
block = [512]
shared = "8 * chunk + 8 * 2 ** shift + 16 + (2048 * (16 // sizeof_T) if 512 // min(32, next_pow2(ceil_div(k, 16 // sizeof_T))) > 2 ** shift else 0)"
args = ["starts", "entries", "x", "y", "sums", "rows", "k", "shift", "min(32, next_pow2(ceil_div(k, 16 // sizeof_T)))", "chunk", "state", "buckets", "most"]

[[launch]]
kernel = "product<LANES, 0>"
when = "plain and k % (16 // sizeof_T) == 0 and not by_tiles"
grid = ["buckets", "ceil_div(k, 1024)"]
block = [512]
shared = "8 * chunk + 8 * 2 ** shift + 16 + (2048 * (16 // sizeof_T) if 512 // min(32, next_pow2(ceil_div(k, 16 // sizeof_T))) > 2 ** shift else 0)"
args = ["starts", "entries", "x", "y", "sums", "rows", "k", "shift", "min(32, next_pow2(ceil_div(k, 16 // sizeof_T)))", "chunk", "state", "buckets", "most"]

[[launch]]
kernel = "tiled<LANES, 1>"
when = "not worth and not plain and by_tiles"
grid = ["ceil_div(rows, 64) + sm_count"]
block = [1024]
shared = "32768"
args = ["starts", "entries", "x", "y", "rows", "k", "next_pow2(ceil_div(k, 16 // sizeof_T))", "sums", "state", "ceil_div(rows, 64)", "most_tiled"]

[[launch]]
kernel = "tiled<LANES, 0>"
when = "plain and by_tiles"
grid = ["ceil_div(rows, 64)"]
block = [1024]
shared = "32768"
args = ["starts", "entries", "x", "y", "rows", "k", "next_pow2(ceil_div(k, 16 // sizeof_T))", "sums", "state", "ceil_div(rows, 64)", "most_tiled"]

[[launch]]
kernel = "product<1, 1>"
when = "not worth and not plain and k % (16 // sizeof_T) != 0"
grid = ["buckets + helpers", "ceil_div(k, 1024)"]
block = [512]
shared = "8 * chunk + 8 * 2 ** shift + 16 + (2048 * 1 if 512 // min(32, next_pow2(k)) > 2 ** shift else 0)"
args = ["starts", "entries", "x", "y", "sums", "rows", "k", "shift", "min(32, next_pow2(k))", "chunk", "state", "buckets", "most"]

[[launch]]
kernel = "product<1, 0>"
when = "plain and k % (16 // sizeof_T) != 0"
grid = ["buckets", "ceil_div(k, 1024)"]
block = [512]
shared = "8 * chunk + 8 * 2 ** shift + 16 + (2048 * 1 if 512 // min(32, next_pow2(k)) > 2 ** shift else 0)"
args = ["starts", "entries", "x", "y", "sums", "rows", "k", "shift", "min(32, next_pow2(k))", "chunk", "state", "buckets", "most"]

[[launch]]                         # rows of x are found in shared memory: entries by row and by blocks of those first
kernel = "gathered"
when = "few"
grid = ["ceil_div(rows, ceil_div(rows, CREWS))"]
block = [1024]
shared = "4 * ceil_div(rows, CREWS) * blocks"
args = ["row_indices", "col_indices", "values", "bounds", "sorted", "rows", "nnz", "ceil_div(rows, CREWS)", "blocks", "deep"]

[[launch]]
kernel = "arranged"
when = "worth and not few"
grid = ["ceil_div(rows, 2 ** shift)"]
block = [512]
shared = "4 * 2 ** shift * blocks"
args = ["starts", "entries", "bounds", "sorted", "rows", "shift", "blocks", "deep"]

[[launch]]
kernel = "blocked<8>"
when = "worth and each == 8"
overlap = true
grid = ["min(sm_count, slabs * ceil_div(rows, 8 * crew))"]
block = ["8 * crew"]
shared = "2 * deep * 128 + crew // 4 * 640"
args = ["bounds", "sorted", "x", "y", "rows", "cols", "k", "blocks", "deep"]

[[launch]]
kernel = "blocked<4>"
when = "worth and each == 4"
overlap = true
grid = ["min(sm_count, slabs * ceil_div(rows, 4 * crew))"]
block = ["8 * crew"]
shared = "2 * deep * 128 + crew // 4 * 640"
args = ["bounds", "sorted", "x", "y", "rows", "cols", "k", "blocks", "deep"]

[[launch]]
kernel = "blocked<2>"
when = "worth and each == 2"
overlap = true
grid = ["min(sm_count, slabs * ceil_div(rows, 2 * crew))"]
block = ["8 * crew"]
shared = "2 * deep * 128 + crew // 4 * 640"
args = ["bounds", "sorted", "x", "y", "rows", "cols", "k", "blocks", "deep"]

[[launch]]
kernel = "blocked<1>"
when = "worth and each == 1"
overlap = true
grid = ["min(sm_count, slabs * ceil_div(rows, 1 * crew))"]
block = ["8 * crew"]
shared = "2 * deep * 128 + crew // 4 * 640"
args = ["bounds", "sorted", "x", "y", "rows", "cols", "k", "blocks", "deep"]
*/
// Entries are first put into at most 1024 buckets of consecutive rows, tile by tile through shared memory, so that they
// are written in runs. A block then sorts a bucket by row in shared memory and multiplies as with CSR: nothing is added
// atomically, y is written once, and the cost of sorting does not depend on k. Where rows are long, buckets are 64 rows and
// a sixteenth of the columns: a block takes those of its rows one after the other, so that x is found in L1.
constexpr int LANES = 16 / sizeof(T);
constexpr int MOST = 2048;           // buckets
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



extern "C" __global__ void __launch_bounds__(1024) count(const int* __restrict__ row_indices, const int* __restrict__ col_indices, int* state, int nnz, int shift, int tile_shift, int tiles) {
    __shared__ int found[MOST];
    const int tid = threadIdx.x;
    found[tid] = found[tid + 1024] = 0;
    __syncthreads();
    if (tiles > 1) {
        for (long long p = ((long long)blockIdx.x * 1024 + tid) * 4; p < nnz; p += gridDim.x * 4096) {
            if (p + 4 <= nnz) {
                const int4 r = *reinterpret_cast<const int4*>(row_indices + p), c = *reinterpret_cast<const int4*>(col_indices + p);
                atomicAdd(&found[(r.x >> shift) * tiles + (c.x >> tile_shift)], 1);
                atomicAdd(&found[(r.y >> shift) * tiles + (c.y >> tile_shift)], 1);
                atomicAdd(&found[(r.z >> shift) * tiles + (c.z >> tile_shift)], 1);
                atomicAdd(&found[(r.w >> shift) * tiles + (c.w >> tile_shift)], 1);
            } else {
                for (long long q = p; q < nnz; q++) atomicAdd(&found[(row_indices[q] >> shift) * tiles + (col_indices[q] >> tile_shift)], 1);
            }
        }
    } else {
        for (long long p = ((long long)blockIdx.x * 1024 + tid) * 4; p < nnz; p += gridDim.x * 4096) {
            if (p + 4 <= nnz) {
                const int4 r = *reinterpret_cast<const int4*>(row_indices + p);
                atomicAdd(&found[r.x >> shift], 1);
                atomicAdd(&found[r.y >> shift], 1);
                atomicAdd(&found[r.z >> shift], 1);
                atomicAdd(&found[r.w >> shift], 1);
            } else {
                for (long long q = p; q < nnz; q++) atomicAdd(&found[row_indices[q] >> shift], 1);
            }
        }
    }
    __syncthreads();
    for (int b = tid; b < MOST; b += 1024)
        if (found[b]) atomicAdd(&state[b], found[b]);
}
extern "C" __global__ void __launch_bounds__(THREADS, 2) partition(const int* __restrict__ row_indices, const int* __restrict__ col_indices,
        const T* __restrict__ values, int* state, int* starts, uint2* entries, int nnz, int shift, int tile_shift, int tiles,
        ACC* sums, int rows, int k, int most) {
    alignas(16) extern __shared__ unsigned char memory[];
    uint2* staged = reinterpret_cast<uint2*>(memory);
    unsigned short* bucket_of = reinterpret_cast<unsigned short*>(memory + 8 * TILE);
    alignas(16) __shared__ int found[MOST];
    alignas(16) __shared__ int target[MOST];
    __shared__ int warps[THREADS / 32];
    const int tid = threadIdx.x;
    const int begin = blockIdx.x * TILE;
    const int size = min(TILE, nnz - begin);
    const unsigned low = (1u << shift) - 1;
    int total;
    {
        const int4 here = reinterpret_cast<const int4*>(state)[tid];
        const int before = scanned(here.x + here.y + here.z + here.w, warps, total);
        const int4 from = make_int4(before, before + here.x, before + here.x + here.y, before + here.x + here.y + here.z);
        reinterpret_cast<int4*>(target)[tid] = from;
        reinterpret_cast<int4*>(found)[tid] = make_int4(0, 0, 0, 0);
        if (blockIdx.x == 0) {
            reinterpret_cast<int4*>(starts)[tid] = from;
            if (tid == 0) starts[MOST] = nnz;
        }
        if (most > 0) {  // sums of the rows of buckets that will be shared out begin at zero
            const int counts[4] = {here.x, here.y, here.z, here.w};
            int tiled = here.x + here.y + here.z + here.w;
            tiled += __shfl_xor_sync(0xffffffffu, tiled, 1);
            tiled += __shfl_xor_sync(0xffffffffu, tiled, 2);
#pragma unroll
            for (int l = 0; l < 4; l++) {
                unsigned many = __ballot_sync(0xffffffffu, tiles == 1 ? counts[l] > most : l == 0 && tid % 4 == 0 && tiled > most);
                for (; many; many &= many - 1) {
                    const int bucket = ((tid & ~31) + __ffs(many) - 1) * 4 + l;
                    const long long top = (long long)(bucket / tiles) << shift, until = min(top + (1 << shift), (long long)rows) * k;
                    for (long long i = top * k + blockIdx.x * 32 + tid % 32; i < until; i += gridDim.x * 32) sums[i] = 0;
                }
            }
        }
    }

    int row[EACH];
    unsigned key[EACH];
    T value[EACH];
#pragma unroll
    for (int q = 0; q < EACH / 4; q++) {
        const int at = (q * THREADS + tid) * 4;
        if (at + 4 <= size) {
            const int4 r = *reinterpret_cast<const int4*>(row_indices + begin + at);
            const int4 c = *reinterpret_cast<const int4*>(col_indices + begin + at);
            const Vector<4> v = *reinterpret_cast<const Vector<4>*>(values + begin + at);
            row[4 * q] = r.x, row[4 * q + 1] = r.y, row[4 * q + 2] = r.z, row[4 * q + 3] = r.w;
            key[4 * q] = c.x, key[4 * q + 1] = c.y, key[4 * q + 2] = c.z, key[4 * q + 3] = c.w;
#pragma unroll
            for (int l = 0; l < 4; l++) value[4 * q + l] = v.v[l];
        } else {
#pragma unroll
            for (int l = 0; l < 4; l++) {
                const bool inside = at + l < size;
                row[4 * q + l] = inside ? row_indices[begin + at + l] : -1;
                key[4 * q + l] = inside ? (col_indices + begin + at)[l] : 0;
                value[4 * q + l] = inside ? values[begin + at + l] : store(ACC(0));
            }
        }
    }
    __syncthreads();
    // The bucket and the place among the tile's entries of the bucket, 13 bits.
#pragma unroll
    for (int e = 0; e < EACH; e++) {
        if (row[e] >= 0) {
            const int bucket = (row[e] >> shift) * tiles + (int)(key[e] >> tile_shift);
            key[e] = key[e] << shift | (row[e] & low);
            row[e] = bucket << 16 | atomicAdd(&found[bucket], 1);
        }
    }
    __syncthreads();
    {
        const int4 here = reinterpret_cast<const int4*>(found)[tid];
        const int counts[4] = {here.x, here.y, here.z, here.w};
        int before = scanned(here.x + here.y + here.z + here.w, warps, total);
#pragma unroll
        for (int l = 0; l < 4; l++) {
            const int bucket = 4 * tid + l;
            if (counts[l]) target[bucket] += atomicAdd(&state[MOST + bucket], counts[l]) - before;
            found[bucket] = before;
            before += counts[l];
        }
    }
    __syncthreads();
#pragma unroll
    for (int e = 0; e < EACH; e++) {
        if (row[e] >= 0) {
            const int bucket = row[e] >> 16;
            const int place = found[bucket] + (row[e] & 0xffff);
            staged[place] = make_uint2(key[e], __float_as_uint(load(value[e])));
            bucket_of[place] = bucket;
        }
    }
    __syncthreads();
#pragma unroll 8
    for (int i = tid; i < size; i += THREADS) entries[target[bucket_of[i]] + i] = staged[i];
}

template <int WIDE, int DEEP> __device__ __forceinline__ void multiplied(
    ACC (&sums)[WIDE], const uint2* sorted, int p, int end, int step, const T* x, int k, int shift) {
    if constexpr (DEEP > 4) for (; p + (DEEP - 1) * step < end; p += DEEP * step) {
        Vector<WIDE> in[DEEP];
#pragma unroll
        for (int a = 0; a < DEEP; a++) {
            in[a] = *reinterpret_cast<const Vector<WIDE>*>(x + (long long)(sorted[p + a * step].x >> shift) * k);
        }
#pragma unroll
        for (int a = 0; a < DEEP; a++) {
            const ACC factor = __uint_as_float(sorted[p + a * step].y);
#pragma unroll
            for (int l = 0; l < WIDE; l++) sums[l] += factor * load(in[a].v[l]);
        }
    }
    for (; p < end; p += 4 * step) {
        Vector<WIDE> in[4];
#pragma unroll
        for (int a = 0; a < 4; a++) {
            if (p + a * step < end)
                in[a] = *reinterpret_cast<const Vector<WIDE>*>(x + (long long)(sorted[p + a * step].x >> shift) * k);
        }
#pragma unroll
        for (int a = 0; a < 4; a++)
            if (p + a * step < end) {
                const ACC factor = __uint_as_float(sorted[p + a * step].y);
#pragma unroll
                for (int l = 0; l < WIDE; l++) sums[l] += factor * load(in[a].v[l]);
            }
    }
}

// What a chunk of a bucket adds to some columns of a row of y; the last one makes it a result.
template <int WIDE> __device__ __forceinline__ void finished(
    ACC (&found)[WIDE], T* y, ACC* sums, long long at, bool first, bool last) {
    if (!first)
#pragma unroll
        for (int l = 0; l < WIDE; l++) found[l] += sums[at + l];
    if (last) {
        Vector<WIDE> out;
#pragma unroll
        for (int l = 0; l < WIDE; l++) out.v[l] = store(found[l]);
        *reinterpret_cast<Vector<WIDE>*>(y + at) = out;
    } else {
#pragma unroll
        for (int l = 0; l < WIDE; l++) sums[at + l] = found[l];
    }
}

// A part of a bucket's sorted entries, shared out to all groups of the block alike; what they find is added to `sums`. Groups
// of a warp that are in the same row add up their shares first.
template <int WIDE, int ALL> __device__ __noinline__ void walked(
    const uint2* sorted, const int* first, int begin, int end, const T* x, ACC* sums, long long top, int left, int right, int k, int shift, int group) {
    const unsigned low = (1u << shift) - 1;
    const int mine = threadIdx.x / group, lane = threadIdx.x % group, groups = ALL / group;
    const int share = max((end - begin + groups - 1) / groups, 32);
    for (int base = left; base < right; base += group * WIDE) {
        const int column = base + lane * WIDE;
        int p = min(begin + mine * share, end);
        const int stop = min(p + share, end);
        while (__any_sync(0xffffffffu, p < stop)) {
            const bool active = p < stop;
            const int own = active ? (int)(sorted[p].x & low) : 0;
            const int until = active ? min(first[own + 1], stop) : p;
            ACC found[WIDE] = {};
            if (column < right) multiplied<WIDE, AHEAD>(found, sorted, p, until, 1, x + column, k, shift);
            p = until;
            const unsigned working = __ballot_sync(0xffffffffu, active);
            const int row = __shfl_sync(0xffffffffu, own, __ffs(working) - 1);
            const bool together = __all_sync(0xffffffffu, !active || own == row);
            if (together)
                for (int d = group; d < 32; d *= 2)
#pragma unroll
                    for (int l = 0; l < WIDE; l++) found[l] += __shfl_xor_sync(0xffffffffu, found[l], d);
            if (column < right && (together ? threadIdx.x % 32 < group : active)) {
                ACC* to = sums + (top + (together ? row : own)) * k + column;
#pragma unroll
                for (int l = 0; l < WIDE; l++) atomicAdd(to + l, found[l]);
            }
        }
    }
}

// Buckets of more than `most` entries are shared out in parts of `chunk` to the thread blocks from `buckets` on: each sorts
// its part and adds what it finds to `sums`, and the last one of a bucket writes its rows of y. A thread block before that
// takes all of its bucket so, because it has found a long row in it.
template <int WIDE, int ALL> __device__ __noinline__ void shared_out(
    const int* __restrict__ starts, const uint2* __restrict__ entries, const T* __restrict__ x, T* __restrict__ y, ACC* sums, int* state,
    uint2* sorted, int* first, int* next, int rows, int k, int shift, int group, int chunk, int tiles, int buckets, int most) {
    constexpr int OWN = 1024 / ALL;
    __shared__ int warps[ALL / 32], chosen[3];
    const int tid = threadIdx.x, height = 1 << shift;
    const unsigned low = height - 1;
    const auto summed = [&](int value, int& total) {
        int sum = value;
#pragma unroll
        for (int d = 1; d < 32; d *= 2) {
            const int other = __shfl_up_sync(0xffffffffu, sum, d);
            if (tid % 32 >= d) sum += other;
        }
        if (tid % 32 == 31) warps[tid / 32] = sum;
        __syncthreads();
        int before = 0;
        total = 0;
        for (int w = 0; w < ALL / 32; w++) {
            before += w < tid / 32 ? warps[w] : 0;
            total += warps[w];
        }
        __syncthreads();
        return before + sum - value;
    };
    const bool alone = blockIdx.x < buckets;
    const int left = blockIdx.y * 1024, right = min(left + 1024, k);
    int parts[OWN] = {}, mine = 0, all;
    if (alone) {
        all = (starts[(blockIdx.x + 1) * tiles] - starts[blockIdx.x * tiles] + chunk - 1) / chunk;
        const long long top = (long long)blockIdx.x << shift;
        for (int r = tid / 32; r < height && top + r < rows; r += ALL / 32)
            for (int c = left + tid % 32; c < right; c += 32) sums[(top + r) * k + c] = 0;
        __threadfence();
        __syncthreads();
    } else {
        int own = 0;
#pragma unroll
        for (int o = 0; o < OWN; o++) {
            const int b = tid * OWN + o, count = b < buckets ? starts[(b + 1) * tiles] - starts[b * tiles] : 0;
            parts[o] = count > most ? (count + chunk - 1) / chunk : 0;
            own += parts[o];
        }
        if (!__syncthreads_or(own)) return;
        mine = summed(own, all);
    }
    for (int item = alone ? 0 : blockIdx.x - buckets; item < all; item += alone ? 1 : gridDim.x - buckets) {
        int at = mine;
#pragma unroll
        for (int o = 0; o < OWN; o++) {
            if (!alone && item >= at && item < at + parts[o]) chosen[0] = tid * OWN + o, chosen[1] = item - at;
            at += parts[o];
        }
        __syncthreads();
        const int bucket = alone ? blockIdx.x : chosen[0], done = (alone ? item : chosen[1]) * chunk;
        const int begin = starts[bucket * tiles], count = starts[(bucket + 1) * tiles] - begin;
        const int size = min(chunk, count - done);
        const uint2* from = entries + begin + done;
        const long long top = (long long)bucket << shift;
        for (int r = tid; r < height; r += ALL) next[r] = 0;
        __syncthreads();
#pragma unroll 4
        for (int i = tid; i < size; i += ALL) atomicAdd(&next[from[i].x & low], 1);
        __syncthreads();
        int carry = 0;
        for (int base = 0; base < height; base += ALL) {
            const int r = base + tid;
            int total;
            const int before = summed(r < height ? next[r] : 0, total);
            if (r < height) first[r] = next[r] = carry + before;
            carry += total;
        }
        if (tid == 0) first[height] = size;
        __syncthreads();
#pragma unroll 4
        for (int i = tid; i < size; i += ALL) {
            const uint2 entry = from[i];
            sorted[atomicAdd(&next[entry.x & low], 1)] = entry;
        }
        __syncthreads();
        walked<WIDE, ALL>(sorted, first, 0, size, x, sums, top, left, right, k, shift, group);
        __threadfence();
        __syncthreads();
        if (tid == 0) chosen[2] = alone ? item == all - 1 : atomicAdd(&state[2 * MOST + bucket], 1) == (count + chunk - 1) / chunk * (int)gridDim.y - 1;
        __syncthreads();
        if (chosen[2]) {
            __threadfence();
            const int from_column = alone ? left : 0, to_column = alone ? right : k;
            for (int r = tid / 32; r < height && top + r < rows; r += ALL / 32)
#pragma unroll 4
                for (int c = from_column + tid % 32; c < to_column; c += 32) y[(top + r) * k + c] = store(__ldcg(sums + (top + r) * k + c));
        }
    }
}

template <int WIDE, int BOUNDED> __global__ void __launch_bounds__(THREADS, 2) product(
    const int* __restrict__ starts, const uint2* __restrict__ entries, const T* __restrict__ x, T* __restrict__ y,
    ACC* sums, int rows, int k, int shift, int group, int chunk, int* state, int buckets, int most) {
    alignas(16) extern __shared__ unsigned char memory[];
    __shared__ int warps[THREADS / 32];
    const int height = 1 << shift;
    const unsigned low = height - 1;
    uint2* sorted = reinterpret_cast<uint2*>(memory);
    int* first = reinterpret_cast<int*>(sorted + chunk);  // height + 1
    int* next = first + height + 1;                       // height
    ACC* partial = reinterpret_cast<ACC*>(memory + (8 * chunk + 8 * height + 16) / 16 * 16);  // where rows are shared
    const int tid = threadIdx.x;
    if constexpr (BOUNDED) if (blockIdx.x >= buckets) {
        shared_out<WIDE, THREADS>(starts, entries, x, y, sums, state, sorted, first, next, rows, k, shift, group, chunk, 1, buckets, most);
        return;
    }
    const int begin = starts[blockIdx.x], count = starts[blockIdx.x + 1] - begin;
    if (BOUNDED && count > most) return;
    const int longest = max(128, 4 * (chunk >> shift));  // entries of a row that a group takes
    const long long top = (long long)blockIdx.x << shift;
    const int groups = THREADS / group, mine = tid / group, lane = tid % group;
    int parts = groups > height ? groups / height : 1;  // of a row, all powers of two
    while (parts > 1 && count < 8 * height * parts) parts /= 2;
    const int teams = groups > height * parts ? groups / (height * parts) : 1;  // beside each other along k
    const int team = mine * teams / groups, unit = mine % (groups / teams);
    const int left = blockIdx.y * 1024, right = min(left + 1024, k);
    int done = 0;
    do {
        const int size = min(chunk, count - done);
        const uint2* from = entries + begin + done;
        const bool start = done == 0;
        done += size;
        const bool last = done >= count;
        for (int r = tid; r < height; r += THREADS) next[r] = 0;
        __syncthreads();
#pragma unroll 4
        for (int i = tid; i < size; i += THREADS) atomicAdd(&next[from[i].x & low], 1);
        __syncthreads();
        int carry = 0, longer = 0;
        for (int base = 0; base < height; base += THREADS) {
            const int r = base + tid;
            int total;
            const int before = scanned(r < height ? next[r] : 0, warps, total);
            if (BOUNDED && r < height) longer |= next[r] > longest;
            if (r < height) first[r] = next[r] = carry + before;
            carry += total;
        }
        if (tid == 0) first[height] = size;
        if constexpr (!BOUNDED) __syncthreads();
        else if (__syncthreads_or(longer && parts == 1)) {
            shared_out<WIDE, THREADS>(starts, entries, x, y, sums, state, sorted, first, next, rows, k, shift, group, chunk, 1, buckets, most);
            return;
        }
#pragma unroll 4
        for (int i = tid; i < size; i += THREADS) {
            const uint2 entry = from[i];
            sorted[atomicAdd(&next[entry.x & low], 1)] = entry;
        }
        __syncthreads();
        for (int base = left; base < right; base += teams * group * WIDE) {
            const int column = base + (team * group + lane) * WIDE;
            if (parts == 1) {
                if (column < right)
                    for (int r = unit; r < height && top + r < rows; r += groups / teams) {
                        ACC found[WIDE] = {};
                        multiplied<WIDE, AHEAD>(found, sorted, first[r], first[r + 1], 1, x + column, k, shift);
                        finished<WIDE>(found, y, sums, (top + r) * k + column, start, last);
                    }
            } else {
                const int r = unit / parts, part = unit % parts;
                ACC found[WIDE] = {};
                if (column < right) multiplied<WIDE, AHEAD>(found, sorted, first[r] + part, first[r + 1], parts, x + column, k, shift);
#pragma unroll
                for (int l = 0; l < WIDE; l++) partial[l * THREADS + tid] = found[l];
                __syncthreads();
                if (part == 0 && column < right && top + r < rows) {
                    for (int q = 1; q < parts; q++)
#pragma unroll
                        for (int l = 0; l < WIDE; l++) found[l] += partial[l * THREADS + tid + q * group];
                    finished<WIDE>(found, y, sums, (top + r) * k + column, start, last);
                }
                __syncthreads();
            }
        }
        __syncthreads();
    } while (done < count);
}

template <int WIDE, int BOUNDED> __global__ void __launch_bounds__(1024, 1) tiled(
    const int* __restrict__ starts, const uint2* __restrict__ entries, const T* __restrict__ x, T* __restrict__ y, int rows, int k, int group,
    ACC* sum_of, int* state, int buckets, int most) {
    constexpr int ROWS = 64, CHUNK = 4096, LONGEST = 512;
    alignas(16) extern __shared__ unsigned char memory[];
    __shared__ int first[ROWS + 1], next[ROWS];
    uint2* sorted = reinterpret_cast<uint2*>(memory);
    ACC* partial = reinterpret_cast<ACC*>(memory);  // at the end
    const int tid = threadIdx.x;
    if constexpr (BOUNDED) if (blockIdx.x >= buckets) {
        shared_out<WIDE, 1024>(starts, entries, x, y, sum_of, state, sorted, first, next, rows, k, 6, group, CHUNK, 16, buckets, most);
        return;
    }
    const int begin = starts[blockIdx.x * 16], count = starts[blockIdx.x * 16 + 16] - begin;
    if (BOUNDED && count > most) return;
    const int parts = 1024 / group / ROWS, r = tid / group / parts, part = tid / group % parts;
    const int column = tid % group * WIDE;
    const long long row = (long long)blockIdx.x * ROWS + r;
    const uint2* from = entries + begin;
    ACC sums[WIDE] = {};
    uint2 entry[CHUNK / 1024];
#pragma unroll
    for (int e = 0; e < CHUNK / 1024; e++)
        if (tid + e * 1024 < count) entry[e] = from[tid + e * 1024];
    for (int done = 0; done < count; done += CHUNK) {
        const int size = min(CHUNK, count - done);
        int rank[CHUNK / 1024];
        if (tid < ROWS) next[tid] = 0;
        __syncthreads();
#pragma unroll
        for (int e = 0; e < CHUNK / 1024; e++)
            if (tid + e * 1024 < size) rank[e] = atomicAdd(&next[entry[e].x % ROWS], 1);
        __syncthreads();
        if (tid < 32) {
            const int one = next[2 * tid], two = next[2 * tid + 1];
            int sum = one + two;
#pragma unroll
            for (int d = 1; d < 32; d *= 2) {
                const int other = __shfl_up_sync(0xffffffffu, sum, d);
                if (tid >= d) sum += other;
            }
            first[2 * tid] = sum - two - one;
            first[2 * tid + 1] = sum - two;
            if (tid == 31) first[ROWS] = sum;
        }
        if constexpr (!BOUNDED) __syncthreads();
        else if (__syncthreads_or(tid < ROWS && next[tid] > LONGEST)) {
            shared_out<WIDE, 1024>(starts, entries, x, y, sum_of, state, sorted, first, next, rows, k, 6, group, CHUNK, 16, buckets, most);
            return;
        }
#pragma unroll
        for (int e = 0; e < CHUNK / 1024; e++)
            if (tid + e * 1024 < size) sorted[first[entry[e].x % ROWS] + rank[e]] = entry[e];
#pragma unroll
        for (int e = 0; e < CHUNK / 1024; e++)
            if (done + CHUNK + tid + e * 1024 < count) entry[e] = from[done + CHUNK + tid + e * 1024];
        __syncthreads();
        if (column < k) multiplied<WIDE, 4>(sums, sorted, first[r] + part, first[r + 1], parts, x + column, k, 6);
    }
    if (parts > 1) {
        __syncthreads();
#pragma unroll
        for (int l = 0; l < WIDE; l++) partial[l * 1024 + tid] = sums[l];
        __syncthreads();
        if (part == 0)
            for (int q = 1; q < parts; q++)
#pragma unroll
                for (int l = 0; l < WIDE; l++) sums[l] += partial[l * 1024 + tid + q * group];
    }
    if (part == 0 && column < k && row < rows) {
        Vector<WIDE> out;
#pragma unroll
        for (int l = 0; l < WIDE; l++) out.v[l] = store(sums[l]);
        *reinterpret_cast<Vector<WIDE>*>(y + row * k + column) = out;
    }
}

struct Span { int from, to; };
__device__ __forceinline__ Span span_of(const int* __restrict__ bounds, int row, int block, int, int blocks) {
    const long long at = (long long)row * (blocks + 1) + block;
    const volatile int* here = bounds + at;
    return {here[0], here[1]};
}

// A tile is HEIGHT rows of y by 128 bytes of each. x is walked through in blocks of rows, whose 128 bytes of every row lie in
// shared memory, two blocks by turns; eight lanes follow the entries of ROWS rows of y, block by block, and keep their sums.
constexpr int WARPS = sizeof(T) == 4 ? 32 : 16;
constexpr int WIDTH = 8 * LANES;             // columns of a tile
constexpr int STAGED = 2 * 4 * 80;           // bytes of a warp: 8 entries of each of 4 rows, twice

template <int ROWS> __global__ void __launch_bounds__(32 * WARPS, 1) blocked(
    const int* __restrict__ bounds, const uint2* __restrict__ entries, const T* __restrict__ x, T* __restrict__ y,
    int rows, int cols, int k, int blocks, int deep) {
    constexpr int HEIGHT = 4 * WARPS * ROWS;
    alignas(16) extern __shared__ unsigned char memory[];
    const int tid = threadIdx.x, lane = tid % 8;
    unsigned char* const staged = memory + tid / 32 * STAGED + tid % 32 / 8 * 80;
    unsigned char* const tiles_of_x = memory + WARPS * STAGED;
    const int tall = (rows + HEIGHT - 1) / HEIGHT, tiles = tall * ((k + WIDTH - 1) / WIDTH);

    const auto fetch = [&](int tile, int block, int turn) {
        const int column = tile / tall * WIDTH + lane * LANES, first = block * deep, count = min(deep, cols - first);
        const unsigned to = (unsigned)__cvta_generic_to_shared(tiles_of_x + turn * deep * 128) + tid * 16;
        const int bytes = column < k ? 16 : 0;
        const T* from = x + (bytes ? (long long)first * k + column : 0);
        for (int c = tid / 8; c < count; c += 4 * WARPS)
            asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" :: "r"(to + (c - tid / 8) * 128), "l"(from + (bytes ? (long long)c * k : 0)), "r"(bytes) : "memory");
        asm volatile("cp.async.commit_group;" ::: "memory");
    };

    int tile = blockIdx.x, block = 0, turn = 0;
    if (tile < tiles) fetch(tile, 0, 0);
    asm volatile("griddepcontrol.wait;" ::: "memory");
    ACC sums[ROWS][LANES];
#pragma unroll
    for (int r = 0; r < ROWS; r++)
#pragma unroll
        for (int l = 0; l < LANES; l++) sums[r][l] = 0;

    // Where the entries of one of the rows lie; read a block ahead, and volatile, as a compiler would put it off.
    const auto bounded = [&](int of_tile, int of_block) {
        const int row = of_tile % tall * HEIGHT + tid / 8 * ROWS + lane;
        Span span = {0, 0};
        if (lane < ROWS && of_tile < tiles && row < rows) span = span_of(bounds, row, of_block, rows, blocks);
        return span;
    };
    Span span = bounded(tile, 0);
    while (tile < tiles) {
        const int top = tile % tall * HEIGHT + tid / 8 * ROWS;
        const bool last = block == blocks - 1;
        const int next_tile = last ? tile + gridDim.x : tile, next_block = last ? 0 : block + 1;
        asm volatile("cp.async.wait_group 0;" ::: "memory");
        __syncthreads();
        if (next_tile < tiles) fetch(next_tile, next_block, turn ^ 1);
        const int from = span.from, to = span.to;
        span = bounded(next_tile, next_block);

        const unsigned char* here = tiles_of_x + turn * deep * 128 + lane * 16;
        int p = __shfl_sync(0xffffffffu, from, 0, 8), end = __shfl_sync(0xffffffffu, to, 0, 8), side = 0;
        uint2 held = p + lane < end ? entries[p + lane] : make_uint2(0, 0);
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            const int p_after = r + 1 < ROWS ? __shfl_sync(0xffffffffu, from, r + 1 < ROWS ? r + 1 : 0, 8) : 0;
            const int end_after = r + 1 < ROWS ? __shfl_sync(0xffffffffu, to, r + 1 < ROWS ? r + 1 : 0, 8) : 0;
            bool more;
            do {
                const int size = min(end - p, 8);
                more = __any_sync(0xffffffffu, end - p > 8);
                p = more ? p + 8 : p_after;
                end = more ? end : end_after;
                unsigned char* const mine = staged + side;
                side ^= STAGED / 2;
                *reinterpret_cast<uint2*>(mine + lane * 8) = held;
                held = p + lane < end ? entries[p + lane] : make_uint2(0, 0);
                __syncwarp();
                for (int a = 0; a < size; a += 2) {
                    const uint4 two = *reinterpret_cast<const uint4*>(mine + a * 8);
                    Vector<LANES> one = *reinterpret_cast<const Vector<LANES>*>(here + two.x), other;
                    const bool both = a + 1 < size;
                    if (both) other = *reinterpret_cast<const Vector<LANES>*>(here + two.z);
#pragma unroll
                    for (int l = 0; l < LANES; l++) sums[r][l] += __uint_as_float(two.y) * load(one.v[l]);
                    if (both)
#pragma unroll
                        for (int l = 0; l < LANES; l++) sums[r][l] += __uint_as_float(two.w) * load(other.v[l]);
                }
            } while (more);
        }
        if (last) {
            const int column = tile / tall * WIDTH + lane * LANES;
#pragma unroll
            for (int r = 0; r < ROWS; r++) {
                Vector<LANES> out;
#pragma unroll
                for (int l = 0; l < LANES; l++) out.v[l] = store(sums[r][l]), sums[r][l] = 0;
                if (top + r < rows && column < k) *reinterpret_cast<Vector<LANES>*>(y + (long long)(top + r) * k + column) = out;
            }
        }
        tile = next_tile, block = next_block, turn ^= 1;
    }
}

// Where the entries of each row and block begin, of counts in shared memory; all threads call. The first begins at `at`.
template <int ALL> __device__ __forceinline__ void laid_out(int* place, int* sums, int* __restrict__ bounds, long long top, int height, int blocks, int at) {
    const int tid = threadIdx.x, lane = tid % 32, all = height * blocks;
    const int each = (all + ALL - 1) / ALL, from = min(tid * each, all), until = min(from + each, all);
    int own = 0;
    for (int i = from; i < until; i++) own += place[i];
    int sum = own;
#pragma unroll
    for (int d = 1; d < 32; d *= 2) {
        const int other = __shfl_up_sync(0xffffffffu, sum, d);
        if (lane >= d) sum += other;
    }
    if (lane == 31) sums[tid / 32] = sum;
    __syncthreads();
    at += sum - own;
    for (int w = 0; w < tid / 32; w++) at += sums[w];
    for (int i = from; i < until; i++) {
        const int count = place[i], row = i / blocks, block = i - row * blocks;
        place[i] = at;
        bounds[(top + row) * (blocks + 1) + block] = at;
        at += count;
        if (block == blocks - 1) bounds[(top + row) * (blocks + 1) + blocks] = at;
    }
    __syncthreads();
}

// All entries, looked through by every block, which keeps those of its rows.
extern "C" __global__ void __launch_bounds__(1024) gathered(
    const int* __restrict__ row_indices, const int* __restrict__ col_indices, const T* __restrict__ values,
    int* __restrict__ bounds, uint2* __restrict__ sorted, int rows, int nnz, int height, int blocks, int deep) {
    alignas(16) extern __shared__ unsigned char memory[];
    __shared__ int sums[32], lesser;
    int* const place = reinterpret_cast<int*>(memory);
    const int tid = threadIdx.x, top = blockIdx.x * height, bottom = min(top + height, rows);
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
    for (int i = tid; i < height * blocks; i += 1024) place[i] = 0;
    if (tid == 0) lesser = 0;
    __syncthreads();
    int before = 0;
    const int whole = nnz / 4 * 4;
#pragma unroll 4
    for (int p = tid * 4; p < whole; p += 4096) {
        const int4 r = *reinterpret_cast<const int4*>(row_indices + p);
        const int row[4] = {r.x, r.y, r.z, r.w};
#pragma unroll
        for (int l = 0; l < 4; l++) {
            before += row[l] < top;
            if (row[l] >= top && row[l] < bottom) atomicAdd(&place[(row[l] - top) * blocks + col_indices[p + l] / deep], 1);
        }
    }
    if (whole + tid < nnz) {
        const int row = row_indices[whole + tid];
        before += row < top;
        if (row >= top && row < bottom) atomicAdd(&place[(row - top) * blocks + col_indices[whole + tid] / deep], 1);
    }
#pragma unroll
    for (int d = 16; d > 0; d /= 2) before += __shfl_xor_sync(0xffffffffu, before, d);
    if (tid % 32 == 0 && before > 0) atomicAdd(&lesser, before);
    __syncthreads();
    laid_out<1024>(place, sums, bounds, top, bottom - top, blocks, lesser);
    const auto put = [&](int row, int p) {
        if (row < top || row >= bottom) return;
        const int column = col_indices[p], block = column / deep;
        sorted[atomicAdd(&place[(row - top) * blocks + block], 1)] = make_uint2((unsigned)(column - block * deep) * 128, __float_as_uint(load(values[p])));
    };
#pragma unroll 4
    for (int p = tid * 4; p < whole; p += 4096) {
        const int4 r = *reinterpret_cast<const int4*>(row_indices + p);
        put(r.x, p), put(r.y, p + 1), put(r.z, p + 2), put(r.w, p + 3);
    }
    if (whole + tid < nnz) put(row_indices[whole + tid], whole + tid);
}

// The entries of a bucket by row and block.
extern "C" __global__ void __launch_bounds__(THREADS) arranged(
    const int* __restrict__ starts, const uint2* __restrict__ entries, int* __restrict__ bounds, uint2* __restrict__ sorted,
    int rows, int shift, int blocks, int deep) {
    alignas(16) extern __shared__ unsigned char memory[];
    __shared__ int sums[THREADS / 32];
    int* const place = reinterpret_cast<int*>(memory);
    const int tid = threadIdx.x, top = blockIdx.x << shift, height = min(1 << shift, rows - top);
    const unsigned low = (1u << shift) - 1;
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
    for (int i = tid; i < height * blocks; i += THREADS) place[i] = 0;
    const int begin = starts[blockIdx.x], end = starts[blockIdx.x + 1];
    __syncthreads();
#pragma unroll 4
    for (int p = begin + tid; p < end; p += THREADS) {
        const unsigned key = entries[p].x;
        atomicAdd(&place[(int)(key & low) * blocks + (int)(key >> shift) / deep], 1);
    }
    __syncthreads();
    laid_out<THREADS>(place, sums, bounds, top, height, blocks, begin);
#pragma unroll 4
    for (int p = begin + tid; p < end; p += THREADS) {
        const uint2 entry = entries[p];
        const int column = entry.x >> shift, block = column / deep;
        sorted[atomicAdd(&place[(int)(entry.x & low) * blocks + block], 1)] = make_uint2((unsigned)(column - block * deep) * 128, entry.y);
    }
}
