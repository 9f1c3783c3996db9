/*! evo
requires = "n < 1073741824"
zero = [{ name = "counters", when = "n > 4096 and n > TOGETHER and n > LONE and sizeof_T == 4" }]

[tune]
TOGETHER = [65536, 16384, 4096]    # keys that one cluster sorts at most
LONE = [4096, 8192, 16384]         # keys that one block of its kind sorts at most
SMALL = [4096, 2048]               # keys that a bitonic network sorts at most
CREW = [512, 1024]                 # threads of a block of that cluster
ATOMIC = [1, 0]                    # whether its first pass, which need not be stable, ranks keys by atomics
THREADS = [1024, 512]              # fp32: of a block of `sweep`; fewer and larger tiles have less to look back on
ITEMS = [16, 20, 12, 24]           # keys of one of them, where there are many
FEW = [8, 4, 12]                   # and where there are fewer
CROWD = [1, 2]                     # blocks of `sweep` for whose registers there is room at least
LOOK = [16, 8, 4]                  # tiles before that are looked at together
FEWEST = [16, 32, 132]             # bf16: blocks that count values where there are at most 65536 keys
COUNTERS = [4, 2]                  # blocks per multiprocessor that count digits
where = ["THREADS * CROWD <= 1024", "THREADS * ITEMS <= 24576"]

[tune.fp32]
TOGETHER = [32768, 16384, 65536]

[tune.bf16]
SMALL = [2048, 4096, 1024]

[tune.fp16]
SMALL = [2048, 4096, 1024]

[let]
tile = "THREADS * ITEMS if n > 2097152 else THREADS * FEW if n > 262144 else 2048"
tiles = "ceil_div(n, tile)"
lone = "n > SMALL and (n <= 4096 or n <= LONE)"
together = "n > 4096 and n > LONE and n <= TOGETHER"
share = "2048 if n <= 16384 else 4096 if n <= 32768 else 8192"  # keys of a block of the cluster

[[buffer]]
name = "counters"                  # fp32: how many keys have each digit, for four digits, and how many tiles have begun
dtype = "int32"
shape = ["4 * 256 + 4"]

[[buffer]]
name = "other"
dtype = "T"
shape = ["n"]

[[buffer]]
name = "states"                    # fp32: of every pass, tile and digit: what is known of the keys up to there
dtype = "int32"
shape = ["4 * 256 * tiles if sizeof_T == 4 else 1"]

[[buffer]]
name = "bins"                      # bf16: how many keys there are of each value
dtype = "int32"
shape = [65536]

[[buffer]]
name = "runs"                      # bf16: of 256 values each, those that occur: where in the group they begin, and which
dtype = "int64"
shape = [65536]

[[buffer]]
name = "groups"                    # bf16: of the 256 groups how many keys, how many different ones
dtype = "int32"
shape = [512]

[[launch]]
kernel = "small<1>"
when = "n <= 1024"
grid = [1]
block = ["max(32, next_pow2(n))"]
args = ["x", "n"]

[[launch]]
kernel = "small<2>"
when = "n > 1024 and n <= 2048 and not lone"
grid = [1]
block = [1024]
args = ["x", "n"]

[[launch]]
kernel = "small<4>"
when = "n > 2048 and n <= 4096 and not lone"
grid = [1]
block = [1024]
args = ["x", "n"]

[[launch]]
kernel = "together<LEAST, 8>"
when = "together and share == 2048"
grid = [8]
cluster = [8]
block = ["CREW"]
shared = "4 * (share + max(share, 8 * CREW) + 2048)"
args = ["x", "n"]

[[launch]]
kernel = "together<MEDIUM, 8>"
when = "together and share == 4096"
grid = [8]
cluster = [8]
block = ["CREW"]
shared = "4 * (share + max(share, 8 * CREW) + 2048)"
args = ["x", "n"]

[[launch]]
kernel = "together<MOST, 8>"
when = "together and share == 8192"
grid = [8]
cluster = [8]
block = ["CREW"]
shared = "4 * (share + max(share, 8 * CREW) + 2048)"
args = ["x", "n"]

[[launch]]
kernel = "together<MEDIUM, 1>"
when = "lone and n <= 4096"
grid = [1]
block = ["CREW"]
shared = "4 * (max(4096, 8 * CREW) + 2048)"
args = ["x", "n"]

[[launch]]
kernel = "together<MOST, 1>"
when = "lone and n > 4096 and n <= 8192"
grid = [1]
block = ["CREW"]
shared = "4 * (max(8192, 8 * CREW) + 2048)"
args = ["x", "n"]

[[launch]]
kernel = "together<TWICE, 1>"
when = "lone and n > 8192"
grid = [1]
block = ["CREW"]
shared = "4 * (16384 + 2048)"
args = ["x", "n"]

[[launch]]
kernel = "by_value"
when = "not together and not lone and n > 4096 and sizeof_T == 2"
cooperative = true
grid = ["sm_count if n > 65536 else min(sm_count, FEWEST)"]
block = [1024]
shared = "131072"
args = ["x", "bins", "runs", "groups", "n"]

[[launch]]
kernel = "count_digits"
when = "not together and not lone and n > 4096 and sizeof_T == 4"
grid = ["min(sm_count * COUNTERS, ceil_div(n, 4096))"]
block = [512]
args = ["x", "counters", "states", "4 * 256 * tiles", "n"]

[[launch]]
kernel = "sweep<ITEMS>"
when = "n > 2097152 and sizeof_T == 4"
group = "pass"
overlap = true
grid = ["tiles"]
block = ["THREADS"]
shared = "4 * max(tile, 8 * THREADS)"
args = ["x if i % 2 == 0 else other", "other if i % 2 == 0 else x", "counters", "states", "i", "n"]

[[launch]]
kernel = "sweep<FEW>"
when = "n > 262144 and n <= 2097152 and sizeof_T == 4"
group = "pass"
overlap = true
grid = ["tiles"]
block = ["THREADS"]
shared = "4 * max(tile, 8 * THREADS)"
args = ["x if i % 2 == 0 else other", "other if i % 2 == 0 else x", "counters", "states", "i", "n"]

[[launch]]
kernel = "sweep<LITTLE>"
when = "not together and not lone and n > 4096 and n <= 262144 and sizeof_T == 4"
group = "pass"
overlap = true
grid = ["tiles"]
block = ["THREADS"]
shared = "4 * max(tile, 8 * THREADS)"
args = ["x if i % 2 == 0 else other", "other if i % 2 == 0 else x", "counters", "states", "i", "n"]

[group.pass]
repeat = 4
*/
// Keys are floats whose bits are turned so that they compare like unsigned numbers. A few are sorted by a bitonic network
// in one block. Of 16 bits all values are counted, and written as often as they occur. Of 32 bits four digits are sorted,
// each in one sweep: a tile is sorted within its block and learns by decoupled look-back what lies before it.
#include <cooperative_groups.h>
namespace cg = cooperative_groups;
typedef unsigned long long Pair;

__device__ __forceinline__ unsigned ordered(unsigned bits) { return bits & 0x80000000u ? ~bits : bits | 0x80000000u; }
__device__ __forceinline__ unsigned bits_of(unsigned key) { return key & 0x80000000u ? key & 0x7fffffffu : ~key; }
__device__ __forceinline__ unsigned key_at(const T* x, int i) {
    if constexpr (sizeof(T) == 4) return ordered(reinterpret_cast<const unsigned*>(x)[i]);
    else return ordered((unsigned)reinterpret_cast<const unsigned short*>(x)[i] << 16);
}
__device__ __forceinline__ void put(T* x, int i, unsigned key) {
    if constexpr (sizeof(T) == 4) reinterpret_cast<unsigned*>(x)[i] = bits_of(key);
    else reinterpret_cast<unsigned short*>(x)[i] = (unsigned short)(bits_of(key) >> 16);
}

// --- few keys -------------------------------------------------------------------------------------------------------

__device__ __forceinline__ void in_order(unsigned& a, unsigned& b, bool up) {
    const unsigned low = min(a, b), high = max(a, b);
    a = up ? low : high, b = up ? high : low;
}

template <int E> __global__ void __launch_bounds__(1024) small(T* x, int n) {
    __shared__ unsigned shared[2][1024 * E];
    const int t = threadIdx.x, threads = blockDim.x, size = threads * E;
    unsigned v[E];
#pragma unroll
    for (int e = 0; e < E; e++) v[e] = t + e * threads < n ? key_at(x, t + e * threads) : 0xffffffffu;  // in any order
    int turn = 0;
#pragma unroll
    for (int run = 2; run <= E; run *= 2)
#pragma unroll
        for (int apart = run / 2; apart; apart /= 2)
#pragma unroll
            for (int e = 0; e < E; e++)
                if (!(e & apart)) in_order(v[e], v[e | apart], ((t * E + e) & run) == 0);
    for (int run = 2 * E; run <= size; run *= 2) {
        const bool up = (t * E & run) == 0;
        int apart = run / 2 / E;  // in threads
        for (; apart >= 32; apart /= 2) {
            unsigned* buffer = shared[turn];
            turn ^= 1;
#pragma unroll
            for (int e = 0; e < E; e++) buffer[e * threads + t] = v[e];
            __syncthreads();
            const bool low = ((t & apart) == 0) == up;
#pragma unroll
            for (int e = 0; e < E; e++) {
                const unsigned rival = buffer[e * threads + (t ^ apart)];
                v[e] = low ? min(v[e], rival) : max(v[e], rival);
            }
        }
        for (; apart; apart /= 2) {
            const bool low = ((t & apart) == 0) == up;
#pragma unroll
            for (int e = 0; e < E; e++) {
                const unsigned rival = __shfl_xor_sync(0xffffffffu, v[e], apart);
                v[e] = low ? min(v[e], rival) : max(v[e], rival);
            }
        }
#pragma unroll
        for (int step = E / 2; step; step /= 2)
#pragma unroll
            for (int e = 0; e < E; e++)
                if (!(e & step)) in_order(v[e], v[e | step], up);
    }
#pragma unroll
    for (int e = 0; e < E; e++)
        if (t * E + e < n) put(x, t * E + e, v[e]);
}

// Exclusive sums of the two halves over 256 threads, warps first to first + 7; all threads of the block call it.
__device__ __forceinline__ Pair before(Pair value, Pair* warps, Pair& all) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, first = warp / 8 * 8;
    Pair sum = value;
#pragma unroll
    for (int offset = 1; offset < 32; offset *= 2) {
        const Pair other = __shfl_up_sync(0xffffffffu, sum, offset);
        if (lane >= offset) sum += other;
    }
    if (lane == 31) warps[warp] = sum;
    __syncthreads();
    Pair earlier = 0;
    all = 0;
#pragma unroll
    for (int w = 0; w < 8; w++) {
        if (first + w < warp) earlier += warps[first + w];
        all += warps[first + w];
    }
    __syncthreads();
    return earlier + sum - value;
}

// --- some thousands: one cluster, or one block -----------------------------------------------------------------------------------

// Digits of eight bits, the lowest first. A block ranks its keys within itself, learns of the other blocks how many keys each
// has of every digit, and sends its own, in order, to where they belong in the cluster.
constexpr int LEAST = 2048 / CREW, MEDIUM = 4096 / CREW, MOST = 8192 / CREW, TWICE = 2 * MOST;
extern __shared__ unsigned halves[];

__device__ __forceinline__ void arrive() {
    __syncwarp();
    asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
}
__device__ __forceinline__ void wait() { asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory"); }

// Which lanes have the same digit.
__device__ __forceinline__ unsigned same(unsigned digit) {
    unsigned peers = 0xffffffffu;
#pragma unroll
    for (int b = 0; b < 8; b++) {
        const bool set = digit >> b & 1;
        const unsigned votes = __ballot_sync(0xffffffffu, set);
        peers &= set ? votes : ~votes;
    }
    return peers;
}

template <int EACH, int BLOCKS> __global__ void __launch_bounds__(CREW) together(T* x, int n) {
    constexpr int SHARE = CREW * EACH, WARPS = CREW / 32, LOW = sizeof(T) == 4 ? 0 : 16, PASSES = sizeof(T);
    unsigned* const next = halves;              // what other blocks send
    unsigned* const local = BLOCKS > 1 ? next + SHARE : next;  // first counts of every warp, then keys
    unsigned* const counts = local + (SHARE > WARPS * 256 ? SHARE : WARPS * 256);  // of every block and digit
    __shared__ Pair warps[32];
    __shared__ unsigned begins[256], places[256];
    const cg::cluster_group cluster = cg::this_cluster();
    const int t = threadIdx.x, lane = t % 32, warp = t / 32, block = BLOCKS > 1 ? (int)cluster.block_rank() : 0;
    unsigned keys[EACH], ranks[EACH];
    if constexpr (BLOCKS > 1) arrive();
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        const int at = block * SHARE + i * CREW + t;
        keys[i] = at < n ? key_at(x, at) : 0xffffffffu;
    }
    if constexpr (BLOCKS > 1) wait();  // all blocks run
#pragma unroll 1
    for (int pass = 0; pass < PASSES; pass++) {
        const int shift = LOW + 8 * pass;
        const bool quick = ATOMIC && pass == 0;
        if (pass) {
#pragma unroll
            for (int i = 0; i < EACH; i++) keys[i] = next[(warp * EACH + i) * 32 + lane];
            if constexpr (BLOCKS == 1) __syncthreads();  // the same memory is used again
        }
        for (int i = t; i < WARPS * 256; i += CREW) local[i] = 0;
        __syncthreads();
        unsigned* const own = local + (quick ? 0 : warp * 256);
        if (quick) {
#pragma unroll
            for (int i = 0; i < EACH; i++) ranks[i] = atomicAdd(local + (keys[i] >> shift & 255), 1u);
        } else {
#pragma unroll
            for (int i = 0; i < EACH; i++) {
                const unsigned digit = keys[i] >> shift & 255, peers = same(digit);
                const unsigned earlier = own[digit], rank = __popc(peers & ((1u << lane) - 1));
                __syncwarp();
                if (rank == 0) own[digit] = earlier + __popc(peers);
                __syncwarp();
                ranks[i] = earlier + rank;
            }
        }
        __syncthreads();
        unsigned found = 0;
        if (t < 256) {
            if (quick) {
                found = local[t];
                local[t] = 0;
            } else {
#pragma unroll
                for (int w = 0; w < WARPS; w++) {
                    const unsigned of_warp = local[w * 256 + t];
                    local[w * 256 + t] = found;
                    found += of_warp;
                }
            }
            if constexpr (BLOCKS > 1)
#pragma unroll
                for (int b = 0; b < BLOCKS; b++) cluster.map_shared_rank(counts, b)[block * 256 + t] = found;
        }
        unsigned of_all = found, of_earlier = 0;
        if constexpr (BLOCKS > 1) {
            arrive();
            wait();
            if (t < 256) {
                of_all = 0;
#pragma unroll
                for (int b = 0; b < BLOCKS; b++) {
                    const unsigned of_block = counts[b * 256 + t];
                    of_all += of_block;
                    if (b < block) of_earlier += of_block;
                }
            }
        }
        Pair all;
        const Pair earlier = before((Pair)of_all << 32 | found, warps, all);
        if (t < 256) begins[t] = (unsigned)earlier, places[t] = (unsigned)(earlier >> 32) + of_earlier - (unsigned)earlier;
        __syncthreads();
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            const unsigned digit = keys[i] >> shift & 255;
            ranks[i] += own[digit] + begins[digit];
        }
        __syncthreads();
#pragma unroll
        for (int i = 0; i < EACH; i++) local[ranks[i]] = keys[i];
        __syncthreads();
        if (BLOCKS == 1 && pass + 1 < PASSES) continue;  // one block has them in order
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            const unsigned at = i * CREW + t, key = local[at], place = places[key >> shift & 255] + at;
            if (BLOCKS > 1 && pass + 1 < PASSES) cluster.map_shared_rank(next, place / SHARE)[place % SHARE] = key;
            else if (place < n) put(x, place, key);
        }
        if (BLOCKS > 1 && pass + 1 < PASSES) {
            arrive();
            wait();
        }
    }
}

// --- 16 bits --------------------------------------------------------------------------------------------------------

// `halves`: 32768 words, counts of a value and of the one with the other sign.
struct alignas(16) Eight { unsigned short v[8]; };

__device__ __forceinline__ void count(unsigned bits) {
    const unsigned key = bits & 0x8000u ? ~bits & 0xffffu : bits | 0x8000u;
    atomicAdd(halves + (key & 0x7fffu), key & 0x8000u ? 0x10000u : 1u);
}

extern "C" __global__ void __launch_bounds__(1024) by_value(T* x, unsigned* bins, Pair* runs, unsigned* groups, int n) {
    __shared__ Pair warps[32];
    __shared__ unsigned begins[257], kinds[256];
    unsigned short* keys = reinterpret_cast<unsigned short*>(x);
    const cg::grid_group grid = cg::this_grid();
    const int t = threadIdx.x, block = blockIdx.x, blocks = gridDim.x;
    for (int i = t; i < 32768; i += 1024) halves[i] = 0;
    for (int i = block * 1024 + t; i < 65536; i += blocks * 1024) bins[i] = 0;
    grid.sync();

    // A count of a block has 16 bits, so that it goes to memory after 65528 keys at the latest.
    const int rounds = (int)(((long long)n + 65528LL * blocks - 1) / (65528LL * blocks));
    const int chunk = (int)(((long long)n + (long long)blocks * rounds - 1) / ((long long)blocks * rounds) + 7) / 8 * 8;
    for (int r = 0; r < rounds; r++) {
        const long long begin = ((long long)r * blocks + block) * chunk, end = min(begin + chunk, (long long)n);
        if (begin < end) {
            const int vectors = (int)(end - begin) / 8;
            const Eight* from = reinterpret_cast<const Eight*>(keys + begin);
            int i = t;
            for (; i + 3072 < vectors; i += 4096) {
                Eight in[4];
#pragma unroll
                for (int u = 0; u < 4; u++) in[u] = from[i + u * 1024];
#pragma unroll
                for (int u = 0; u < 4; u++)
#pragma unroll
                    for (int l = 0; l < 8; l++) count(in[u].v[l]);
            }
            for (; i < vectors; i += 1024) {
                const Eight in = from[i];
#pragma unroll
                for (int l = 0; l < 8; l++) count(in.v[l]);
            }
            const long long rest = begin + vectors * 8LL + t;
            if (rest < end) count(keys[rest]);
        }
        __syncthreads();
        for (int i = t; i < 32768; i += 1024) {
            const int at = (i + block * 992) & 32767;  // blocks begin at different places
            const unsigned both = halves[at];
            if (both) {
                halves[at] = 0;
                if (both & 0xffffu) atomicAdd(bins + at, both & 0xffffu);
                if (both >> 16) atomicAdd(bins + 32768 + at, both >> 16);
            }
        }
        __syncthreads();
    }
    grid.sync();

    // 256 threads a group: which values occur, and where in the group they begin.
    for (int g = 0; g < 256; g += 4 * blocks) {
        const int group = g + block + t / 256 * blocks, key = group * 256 + t % 256;
        const unsigned found = group < 256 ? __ldcg(bins + key) : 0;
        Pair all;
        const Pair earlier = before((Pair)(found != 0) << 32 | found, warps, all);
        if (group < 256) {
            if (found) runs[group * 256 + (int)(earlier >> 32)] = (Pair)(unsigned)earlier << 16 | (unsigned)key;
            if (t % 256 == 0) groups[group] = (unsigned)all, groups[256 + group] = (unsigned)(all >> 32);
        }
    }
    grid.sync();

    {
        Pair all;
        const Pair earlier = before(t < 256 ? __ldcg(groups + t) : 0u, warps, all);
        if (t < 256) begins[t] = (unsigned)earlier, kinds[t] = __ldcg(groups + 256 + t);
        if (t == 0) begins[256] = n;
    }
    __syncthreads();
    const int lane = t % 32, rows = (n + 255) / 256, each = (rows + blocks * 32 - 1) / (blocks * 32);
    const int first = (block * 32 + t / 32) * each, last = min(first + each, rows);
    int group = 0, run = 0;
    unsigned end = 0, value = 0;  // of the run at hand
    const auto take = [&](int index, Pair found) {
        run = index;
        const unsigned key = (unsigned)found & 0xffffu;
        value = key & 0x8000u ? key & 0x7fffu : ~key & 0xffffu;
        end = index + 1 < kinds[group] ? begins[group] + (unsigned)(__ldcg(runs + group * 256 + index + 1) >> 16) : begins[group + 1];
    };
    const auto find = [&](unsigned at) {
        int low = 0, high = 256;  // begins[low] <= at < begins[high]
        while (high - low > 1) {
            const int middle = (low + high) / 2;
            if (begins[middle] <= at) low = middle;
            else high = middle;
        }
        group = low;
        const unsigned inside = at - begins[group];
        low = 0, high = kinds[group];
        Pair found = __ldcg(runs + group * 256);
        while (high - low > 1) {
            const int middle = (low + high) / 2;
            const Pair tried = __ldcg(runs + group * 256 + middle);
            if ((unsigned)(tried >> 16) <= inside) low = middle, found = tried;
            else high = middle;
        }
        take(low, found);
    };
    for (int row = first; row < last; row++) {
        const unsigned at = row * 256u + lane * 8u;
        if (at >= n) break;
        if (at >= end) find(at);
        Eight out;
        if (at + 8 <= end) {
#pragma unroll
            for (int l = 0; l < 8; l++) out.v[l] = (unsigned short)value;
        } else {
#pragma unroll
            for (int l = 0; l < 8; l++) {
                if (at + l >= end && at + l < n) {
                    if (run + 1 < kinds[group]) take(run + 1, __ldcg(runs + group * 256 + run + 1));
                    else find(at + l);
                }
                out.v[l] = (unsigned short)value;
            }
        }
        if (at + 8 <= n) {
            *reinterpret_cast<Eight*>(keys + at) = out;
        } else {
#pragma unroll
            for (int l = 0; l < 8; l++)
                if (at + l < n) keys[at + l] = out.v[l];
        }
    }
}

// --- 32 bits --------------------------------------------------------------------------------------------------------

// The highest digit of floats has few values: eight counters each keep lanes apart.
extern "C" __global__ void __launch_bounds__(512) count_digits(const T* x, unsigned* counters, unsigned* states, int all_states, int n) {
    __shared__ unsigned low[3 * 256], high[256 * 8];
    const int t = threadIdx.x;
    for (int i = t; i < 768; i += 512) low[i] = 0;
    for (int i = t; i < 2048; i += 512) high[i] = 0;
    for (int i = blockIdx.x * 512 + t; i < all_states; i += gridDim.x * 512) states[i] = 0;
    __syncthreads();
    const auto count = [&](unsigned bits) {
        const unsigned key = ordered(bits);
        atomicAdd(low + (key & 255), 1u);
        atomicAdd(low + 256 + (key >> 8 & 255), 1u);
        atomicAdd(low + 512 + (key >> 16 & 255), 1u);
        atomicAdd(high + (key >> 24) * 8 + t % 8, 1u);
    };
    const unsigned* keys = reinterpret_cast<const unsigned*>(x);
    const int vectors = n / 4, step = gridDim.x * 512;
    int i = blockIdx.x * 512 + t;
    for (; i + step < vectors; i += 2 * step) {
        const uint4 a = reinterpret_cast<const uint4*>(keys)[i], b = reinterpret_cast<const uint4*>(keys)[i + step];
        count(a.x), count(a.y), count(a.z), count(a.w);
        count(b.x), count(b.y), count(b.z), count(b.w);
    }
    if (i < vectors) {
        const uint4 a = reinterpret_cast<const uint4*>(keys)[i];
        count(a.x), count(a.y), count(a.z), count(a.w);
    }
    if (blockIdx.x == 0 && vectors * 4 + t < n) count(keys[vectors * 4 + t]);
    __syncthreads();
    for (int d = t; d < 1024; d += 512) {
        unsigned sum = 0;
        if (d < 768) sum = low[d];
        else
            for (int c = 0; c < 8; c++) sum += high[(d - 768) * 8 + (c + d) % 8];
        if (sum) atomicAdd(counters + d, sum);
    }
}

constexpr unsigned OF_TILE = 1u << 30, OF_ALL = 2u << 30, VALUE = OF_TILE - 1;

// (No __restrict__: nothing may be read before the wait.)
constexpr int LITTLE = 2048 / THREADS;

template <int EACH> __global__ void __launch_bounds__(THREADS, CROWD) sweep(const T* from, T* to, unsigned* counters, unsigned* states, int pass, int n) {
    constexpr int TILE = THREADS * EACH, WARPS = THREADS / 32;
    unsigned* shared = halves;  // first counts of every warp, then keys
    __shared__ Pair warps[32];
    __shared__ unsigned begins[256], places[256];
    __shared__ unsigned ticket;
    const int t = threadIdx.x, lane = t % 32, warp = t / 32, shift = 8 * pass;
    for (int i = t; i < WARPS * 256; i += THREADS) shared[i] = 0;
    cudaGridDependencySynchronize();
    if (t == 0) ticket = atomicAdd(counters + 1024 + pass, 1u);
    __syncthreads();
    const int tile = ticket;
    const int first = tile * TILE, count = min(n - first, TILE);
    const unsigned* keys_in = reinterpret_cast<const unsigned*>(from) + first;
    unsigned keys[EACH];
    unsigned ranks[EACH / 2] = {};  // two in one
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        const int at = (warp * EACH + i) * 32 + lane;
        keys[i] = at < count ? keys_in[at] : pass ? 0xffffffffu : 0x7fffffffu;  // the largest, and behind all others
        if (pass == 0) keys[i] = ordered(keys[i]);
    }
    const unsigned global = t < 256 ? counters[pass * 256 + t] : 0;
    unsigned* own = shared + warp * 256;
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        const unsigned digit = keys[i] >> shift & 255, peers = same(digit);
        const unsigned earlier = own[digit], rank = __popc(peers & ((1u << lane) - 1));
        __syncwarp();
        if (rank == 0) own[digit] = earlier + __popc(peers);
        __syncwarp();
        ranks[i / 2] |= (earlier + rank) << i % 2 * 16;
    }
    __syncthreads();
    unsigned* state = states + ((long long)pass * gridDim.x + tile) * 256 + t;
    unsigned found = 0;
    if (t < 256) {
#pragma unroll
        for (int w = 0; w < WARPS; w++) {
            const unsigned of_warp = shared[w * 256 + t];
            shared[w * 256 + t] = found;
            found += of_warp;
        }
        *(volatile unsigned*)state = (tile ? OF_TILE : OF_ALL) | found;
    }
    Pair all;
    const Pair earlier = before((Pair)global << 32 | found, warps, all);
    if (t < 256) begins[t] = (unsigned)earlier;
    __syncthreads();
    // Keys are put in order before anybody waits for what lies before the tile.
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        const unsigned digit = keys[i] >> shift & 255;
        ranks[i / 2] += (own[digit] + begins[digit]) << i % 2 * 16;
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < EACH; i++) shared[ranks[i / 2] >> i % 2 * 16 & 0xffffu] = keys[i];
    if (t < 256) {
        unsigned sum = 0;
        if (tile) {
            bool done = false;
            for (int next = tile - 1; !done;) {
                unsigned known[LOOK];
#pragma unroll
                for (int u = 0; u < LOOK; u++) known[u] = u <= next ? __ldcv(state - (long long)(tile - next + u) * 256) : OF_ALL;
                bool open = true;
#pragma unroll
                for (int u = 0; u < LOOK; u++) {
                    open = open && !done && known[u] != 0;
                    if (open) {
                        sum += known[u] & VALUE;
                        done = known[u] & OF_ALL;
                        next--;
                    }
                }
            }
            *(volatile unsigned*)state = OF_ALL | (sum + found);
        }
        places[t] = (unsigned)(earlier >> 32) + sum - (unsigned)earlier;
    }
    __syncthreads();
    cudaTriggerProgrammaticLaunchCompletion();
    unsigned* keys_out = reinterpret_cast<unsigned*>(to);
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        const int at = i * THREADS + t;
        if (at < count) {
            const unsigned key = shared[at];
            keys_out[places[key >> shift & 255] + at] = pass == 3 ? bits_of(key) : key;
        }
    }
}
