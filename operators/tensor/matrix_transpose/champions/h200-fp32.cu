/*! evo
[let]
vectors = "rows % (16 // sizeof_T) == 0 and cols % (16 // sizeof_T) == 0"
whole = "rows % (256 // sizeof_T) == 0 and cols % (256 // sizeof_T) == 0"
large = "whole and rows * cols * sizeof_T >= 268435456"  # several times L2
middle = "whole and not large and (sizeof_T == 4 or rows * cols * sizeof_T >= 67108864)"

[[launch]]                         # large tensors: what was read stays in the caches
kernel = "tiles<16, 16, true, true>"
when = "large"
grid = ["rows // (256 // sizeof_T) * (cols // (256 // sizeof_T))"]
block = [256]
args = ["x", "y", "rows", "cols", "rows // (256 // sizeof_T)"]

[[launch]]
kernel = "tiles<16, 16, false, true>"
when = "middle and sizeof_T == 4"
grid = ["rows // 64 * (cols // 64)"]
block = [256]
args = ["x", "y", "rows", "cols", "rows // 64"]

[[launch]]
kernel = "tiles<8, 16, false, true>"
when = "middle and sizeof_T == 2"
grid = ["rows // 128 * (cols // 64)"]
block = [128]
args = ["x", "y", "rows", "cols", "rows // 128"]

[[launch]]                         # smaller ones of 16 bits: more blocks
kernel = "tiles<8, 8, false, true>"
when = "whole and not large and not middle"
grid = ["rows // 64 * (cols // 64)"]
block = [64]
args = ["x", "y", "rows", "cols", "rows // 64"]

[[launch]]                         # tiles that are cut off
kernel = "tiles<16, 16, false, false>"
when = "vectors and not whole"
grid = ["ceil_div(rows, 256 // sizeof_T) * ceil_div(cols, 256 // sizeof_T)"]
block = [256]
args = ["x", "y", "rows", "cols", "ceil_div(rows, 256 // sizeof_T)"]

[[launch]]                         # whatever else
kernel = "whatever"
when = "not vectors"
grid = ["ceil_div(cols, 32)", "min(ceil_div(rows, 32), 65535)"]
block = [32, 8]
args = ["x", "y", "rows", "cols"]
*/
// A tile has WIDE x HIGH squares of LANES x LANES elements, and a thread has one. It reads the square as vectors beside
// its neighbours', turns it in registers, and leaves it in shared memory as vectors of the result, whose rows are
// written as vectors as well. Squares are shifted by one from column to column so that eight lanes always meet all
// banks.
constexpr int LANES = 16 / sizeof(T);

// A plain load, or one that is the last to leave L1 and L2. Measured, the latter is faster from 256 MiB on (1 to 2 %)
// and slower below 128 MiB (2 to 6 %), where more of the result can stay in L2.
template <bool LAST> __device__ __forceinline__ uint4 fetched(const T* from) {
    uint4 v;
    if constexpr (LAST) {
        unsigned long long policy;
        asm volatile("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(policy));
        asm volatile("ld.global.L1::evict_last.L2::cache_hint.v4.u32 {%0, %1, %2, %3}, [%4], %5;"
                     : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(from), "l"(policy) : "memory");
    } else {
        asm volatile("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(from) : "memory");
    }
    return v;
}

__device__ __forceinline__ void turn(const uint4 (&in)[LANES], uint4 (&out)[LANES]) {
    unsigned from[LANES][4], to[LANES][4];
#pragma unroll
    for (int i = 0; i < LANES; i++)
        from[i][0] = in[i].x, from[i][1] = in[i].y, from[i][2] = in[i].z, from[i][3] = in[i].w;
#pragma unroll
    for (int i = 0; i < LANES; i++)
#pragma unroll
        for (int k = 0; k < 4; k++) {
            if constexpr (LANES == 8)
                to[i][k] = __byte_perm(from[2 * k][i / 2], from[2 * k + 1][i / 2], i % 2 ? 0x7632 : 0x5410);
            else
                to[i][k] = from[k][i];
        }
#pragma unroll
    for (int i = 0; i < LANES; i++) out[i] = make_uint4(to[i][0], to[i][1], to[i][2], to[i][3]);
}

// Blocks take the tiles downwards, so that those that run together write long pieces of the result's rows. Places are
// computed from the tile's corner, and the launch bounds ask for one block: both take registers, so that at most 1,024
// threads share a multiprocessor (2,048 were slower in fp32). Only tiles that are cut off need conditions.
template <int WIDE, int HIGH, bool LAST, bool WHOLE>
__global__ void __launch_bounds__(WIDE * HIGH, 1) tiles(const T* __restrict__ x, T* __restrict__ y, int rows, int cols,
        int down) {
    __shared__ uint4 tile[WIDE * LANES * HIGH + WIDE];
    const int t = threadIdx.x, a = t % WIDE, b = t / WIDE;
    const int top = blockIdx.x % down * (HIGH * LANES), left = blockIdx.x / down * (WIDE * LANES);
    const T* from = x + ((long long)top * cols + left);
    T* to = y + ((long long)left * rows + top);
    if (WHOLE || (left + a * LANES < cols && top + b * LANES < rows)) {
        uint4 in[LANES], out[LANES];
#pragma unroll
        for (int i = 0; i < LANES; i++) in[i] = fetched<LAST>(from + ((long long)(b * LANES + i) * cols + a * LANES));
        turn(in, out);
#pragma unroll
        for (int i = 0; i < LANES; i++) tile[(a * LANES + i) * HIGH + a + b] = out[i];
    }
    __syncthreads();
    uint4 v[LANES];
#pragma unroll
    for (int i = 0; i < LANES; i++) {
        const int at = t + i * (WIDE * HIGH);
        v[i] = tile[at + at / HIGH / LANES];
    }
#pragma unroll
    for (int i = 0; i < LANES; i++) {
        const int at = t + i * (WIDE * HIGH), line = at / HIGH, row = at % HIGH * LANES;
        if (WHOLE || (left + line < cols && top + row < rows))
            *reinterpret_cast<uint4*>(to + ((long long)line * rows + row)) = v[i];
    }
}

extern "C" __global__ void __launch_bounds__(256) whatever(const T* __restrict__ x, T* __restrict__ y, int rows,
        int cols) {
    __shared__ T tile[32][33];
    const int left = blockIdx.x * 32;
    for (int top = blockIdx.y * 32; top < rows; top += gridDim.y * 32) {
        for (int i = threadIdx.y; i < 32; i += 8)
            if (top + i < rows && left + threadIdx.x < cols)
                tile[i][threadIdx.x] = x[(long long)(top + i) * cols + left + threadIdx.x];
        __syncthreads();
        for (int i = threadIdx.y; i < 32; i += 8)
            if (left + i < cols && top + threadIdx.x < rows)
                y[(long long)(left + i) * rows + top + threadIdx.x] = tile[threadIdx.x][i];
        __syncthreads();
    }
}
