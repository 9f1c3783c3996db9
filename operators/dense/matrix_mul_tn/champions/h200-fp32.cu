/*! evo
[tune]
BM = [128, 256]
BN = [256, 128]
BK = [16, 8]
STAGES = [4, 3]
GROUP = [16, 8, 32]
where = ["BM * BN <= 32768"]

[let]
threads = "BM * BN // 128"
units = "sm_count * (256 // threads)"
tiles = "ceil_div(m, BM) * ceil_div(n, BN)"
rest = "tiles % units"

[[buffer]]
name = "parts"
dtype = "ACC"
shape = ["max(2 * units * BM * BN * min(rest, 1), 1)"]

[[launch]]
kernel = "gemm<4>"
when = "m % 4 == 0 and n % 4 == 0"
grid = ["units"]
block = ["threads"]
shared = "STAGES * BK * (BM + BN) * 4"
args = ["a", "b", "c", "parts", "m", "n", "k"]

[[launch]]
kernel = "gemm<1>"
when = "(m % 4 != 0 or n % 4 != 0)"
grid = ["units"]
block = ["threads"]
shared = "STAGES * BK * (BM + BN) * 4"
args = ["a", "b", "c", "parts", "m", "n", "k"]

[[launch]]
kernel = "finish"                  # sums of tiles that several blocks shared
when = "rest > 0"
grid = ["rest", 32]
block = ["threads"]
args = ["parts", "c", "units", "m", "n", "k"]
*/
// fp32 by FFMA: 8 x 16 results a thread, 64 x 64 a warp, so that 128 FFMA come on 6 reads of 128 bits from shared memory.
// One wave of blocks stays; each computes whole tiles, and of the tiles that are left over (fewer than blocks) an equal
// share of the steps along k, so that no multiprocessor waits at the end. A factor whose rows lie along k is turned by
// copies of 4 bytes. What k lacks to whole steps is missing at the first step, so that the loop has no bounds to check;
// rows and columns beyond the border repeat the last one, and are not stored.
constexpr int THREADS = BM * BN / 128, WARPS_N = BN / 64;

// PTX begin
__device__ __forceinline__ unsigned shared_address(const void* at) { return __cvta_generic_to_shared(at); }
template <int BYTES> __device__ __forceinline__ void copy_async(float* to, const float* from, int bytes) {
    if (BYTES == 16) asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)), "l"(from), "r"(bytes) : "memory");
    else asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(shared_address(to)), "l"(from), "r"(bytes) : "memory");
}
__device__ __forceinline__ void copies_end_group() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int LEFT> __device__ __forceinline__ void copies_wait() { asm volatile("cp.async.wait_group %0;" ::"n"(LEFT) : "memory"); }
// PTX end

// W rows (TURN: of `pitch` elements along k) or columns of a factor, of which a stage holds BK x W.
template <int W, bool TURN, int V> struct Panel {
    static constexpr int PITCH = TURN ? W + 4 : W, ROWS = TURN ? W * 8 / THREADS : 1, AT_ONCE = THREADS / (W / V);
    const float* from[ROWS];

    __device__ __forceinline__ void begin(const float* x, int start, int size, long long pitch, int k_start) {
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            if (TURN) from[r] = x + min(start + (int)threadIdx.x / 8 + r * (THREADS / 8), size - 1) * pitch + k_start + threadIdx.x % 8;
            else from[r] = x + (k_start + (int)threadIdx.x / (W / V)) * pitch + min(start + (int)threadIdx.x % (W / V) * V, size - V);
        }
    }
    // Copies the next stage, of which the first `lead` elements along k do not exist.
    template <bool FIRST> __device__ __forceinline__ void copy(float* to, const float* x, long long pitch, int lead) {
        if (TURN) {
            float* mine = to + threadIdx.x % 8 * PITCH + threadIdx.x / 8;
#pragma unroll
            for (int l = 0; l < BK; l += 8)
#pragma unroll
                for (int r = 0; r < ROWS; r++) {
                    const bool there = !FIRST || l + (int)threadIdx.x % 8 >= lead;
                    copy_async<4>(mine + l * PITCH + r * (THREADS / 8), there ? from[r] + l : x, there ? 4 : 0);
                }
#pragma unroll
            for (int r = 0; r < ROWS; r++) from[r] += BK;
        } else {
            float* mine = to + threadIdx.x / (W / V) * W + threadIdx.x % (W / V) * V;
#pragma unroll
            for (int l = 0; l < BK; l += AT_ONCE) {
                const bool there = !FIRST || l + (int)threadIdx.x / (W / V) >= lead;
                copy_async<4 * V>(mine + l * W, there ? from[0] : x, there ? 4 * V : 0);
                from[0] += AT_ONCE * pitch;
            }
        }
    }
};

// Lanes 0 and 1, and the halves of a warp, differ in columns, other lanes in rows: reads of both factors take two cycles.
__device__ __forceinline__ int lane_row() { return threadIdx.x / 32 / WARPS_N * 64 + threadIdx.x % 16 / 2 * 4; }
__device__ __forceinline__ int lane_col() { return threadIdx.x / 32 % WARPS_N * 64 + (threadIdx.x % 2 + threadIdx.x % 32 / 16 * 2) * 4; }

__device__ __forceinline__ void place(int tile, int m, int n, int& top, int& left) {
    const int down = (m + BM - 1) / BM, across = (n + BN - 1) / BN, of_group = tile / (GROUP * across), in_group = tile % (GROUP * across);
    const int height = min(GROUP, down - of_group * GROUP);
    top = (of_group * GROUP + in_group % height) * BM;
    left = in_group / height * BN;
}

__device__ __forceinline__ void write(float* c, int y, int x, int m, int n, float4 v) {
    if (y >= m || x >= n) return;
    float* to = c + (long long)y * n + x;
    if (n % 4 == 0) { *(float4*)to = v; return; }
    to[0] = v.x;
    if (x + 1 < n) to[1] = v.y;
    if (x + 2 < n) to[2] = v.z;
    if (x + 3 < n) to[3] = v.w;
}

template <int V> __global__ void __launch_bounds__(THREADS, 256 / THREADS) gemm(const float* a, const float* b, float* c, float* parts, int m, int n, int k) {
    using Left = Panel<BM, false, V>;
    using Right = Panel<BN, false, V>;
    constexpr int OF_LEFT = BK * Left::PITCH, STAGE = OF_LEFT + BK * Right::PITCH;
    alignas(16) extern __shared__ float memory[];
    const long long a_pitch = m, b_pitch = n;
    const int steps = (k + BK - 1) / BK, lead = steps * BK - k, tiles = ((m + BM - 1) / BM) * ((n + BN - 1) / BN);
    const int whole = tiles / gridDim.x, rest = tiles % gridDim.x;
    long long at = (long long)rest * steps * blockIdx.x / gridDim.x;
    const long long end = (long long)rest * steps * (blockIdx.x + 1) / gridDim.x;
    Left of_a;
    Right of_b;
    int piece = 0, top, left, first, last;

    auto next = [&]() {  // where the next piece lies, and the copies of its first stages
        if (piece < whole) {
            place(piece * gridDim.x + blockIdx.x, m, n, top, left);
            first = 0, last = steps;
        } else {
            if (at >= end) return false;
            place(whole * gridDim.x + (int)(at / steps), m, n, top, left);
            first = at % steps;
            last = (int)min((long long)steps, first + end - at);
            at += last - first;
        }
        of_a.begin(a, top, m, a_pitch, first * BK - lead);
        of_b.begin(b, left, n, b_pitch, first * BK - lead);
        for (int s = 0; s < STAGES - 1; s++) {
            if (first + s < last) {
                of_a.template copy<true>(memory + s * STAGE, a, a_pitch, lead - (first + s) * BK);
                of_b.template copy<true>(memory + s * STAGE + OF_LEFT, b, b_pitch, lead - (first + s) * BK);
            }
            copies_end_group();
        }
        return true;
    };

    bool more = next();
    while (more) {
        float sums[8][16] = {}, column[2][8], row[2][16];
        const float *columns = memory + lane_row(), *rows = memory + OF_LEFT + lane_col();
        int from = 0, to = STAGES - 1;  // stages
        auto read = [&](int which, int l) {
#pragma unroll
            for (int i = 0; i < 8; i += 4) *(float4*)&column[which][i] = *(const float4*)(columns + l * Left::PITCH + i * 8);
#pragma unroll
            for (int j = 0; j < 16; j += 4) *(float4*)&row[which][j] = *(const float4*)(rows + l * Right::PITCH + j * 4);
        };
        copies_wait<STAGES - 2>();
        __syncthreads();
        read(0, 0);
        for (int left_over = last - first; left_over > 0; left_over--) {
#pragma unroll
            for (int l = 0; l < BK; l++) {
                if (l == BK - 1) {
                    const int step = from == STAGES - 1 ? STAGE - STAGES * STAGE : STAGE;
                    from = from == STAGES - 1 ? 0 : from + 1;
                    columns += step, rows += step;
                    copies_wait<STAGES - 2>();
                    __syncthreads();
                }
                if (l < BK - 1 || left_over > 1) read((l + 1) % 2, (l + 1) % BK);
                if (l == 0) {
                    if (left_over >= STAGES) {
                        of_a.template copy<false>(memory + to * STAGE, a, a_pitch, 0);
                        of_b.template copy<false>(memory + to * STAGE + OF_LEFT, b, b_pitch, 0);
                    }
                    to = to == STAGES - 1 ? 0 : to + 1;
                    copies_end_group();
                }
#pragma unroll
                for (int i = 0; i < 8; i++)  // back and forth: neighbours share a factor, and registers of one bank seldom meet
#pragma unroll
                    for (int t = 0; t < 16; t++) {
                        const int j = i % 2 ? 15 - t : t;
                        sums[i][j] += column[l % 2][i] * row[l % 2][j];
                    }
            }
        }
        const int y = top + lane_row(), x = left + lane_col();
        float* part = last - first == steps ? nullptr : parts + ((long long)blockIdx.x * 2 + (piece - whole)) * (BM * BN) + threadIdx.x * 4;
        piece++;
        more = next();
#pragma unroll
        for (int i = 0; i < 8; i++)
#pragma unroll
            for (int j = 0; j < 16; j += 4) {
                const float4 v = make_float4(sums[i][j], sums[i][j + 1], sums[i][j + 2], sums[i][j + 3]);
                if (part) *(float4*)(part + (i * 4 + j / 4) * THREADS * 4) = v;
                else write(c, y + i / 4 * 32 + i % 4, x + j * 4, m, n, v);
            }
    }
}

extern "C" __global__ void __launch_bounds__(THREADS) finish(const float* parts, float* c, int units, int m, int n, int k) {
    const int steps = (k + BK - 1) / BK, tiles = ((m + BM - 1) / BM) * ((n + BN - 1) / BN), rest = tiles % units;
    const long long all = (long long)rest * steps, begin = (long long)blockIdx.x * steps;
    float4 sum = {};
    for (long long u = (long long)blockIdx.x * units / rest; u < units; u++) {
        const long long from = all * u / units, to = all * (u + 1) / units;
        if (from >= begin + steps) break;
        if (to <= begin || from == to) continue;
        if (from <= begin && to >= begin + steps) return;  // one block had all of it
        const float4 v = *(const float4*)(parts + (u * 2 + (from < begin)) * (BM * BN) + (blockIdx.y * THREADS + threadIdx.x) * 4);
        sum.x += v.x, sum.y += v.y, sum.z += v.z, sum.w += v.w;
    }
    int top, left;
    place(tiles - rest + blockIdx.x, m, n, top, left);
    const int i = blockIdx.y / 4, j = blockIdx.y % 4;
    write(c, top + lane_row() + i / 4 * 32 + i % 4, left + lane_col() + j * 16, m, n, sum);
}
