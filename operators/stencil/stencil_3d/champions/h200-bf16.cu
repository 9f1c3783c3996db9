/*! evo
[tune]
PLANES = [16, 32, 8]
SMALL = [5000000, 2965820, 9000000] # points up to which all that a thread reads is under way at once
FLAT = [300000, 600000]            # points up to which that is of one plane,
PAIRS = [1200000, 600000]          # or of two
BLOCK_X = [32, 8, 16, 64]
BLOCK_Y = [4, 1, 2, 8]
BLOCK_Z = [2, 1, 4]

[let]
whole = "nz % (16 // sizeof_T) == 0"
small = "whole and nx * ny * nz <= SMALL"

[[launch]]
when = "small and nx * ny * nz <= FLAT"
kernel = "bricks<1>"
grid = ["ceil_div(ny * (nz // (16 // sizeof_T)), 128)", "nx"]
block = [128]
args = ["u", "rate", "v", "nx", "ny", "nz"]

[[launch]]
when = "small and nx * ny * nz > FLAT and nx * ny * nz <= PAIRS"
kernel = "bricks<2>"
grid = ["ceil_div(ny * (nz // (16 // sizeof_T)), 128)", "ceil_div(nx, 2)"]
block = [128]
args = ["u", "rate", "v", "nx", "ny", "nz"]

[[launch]]
when = "small and nx * ny * nz > FLAT and nx * ny * nz > PAIRS"
kernel = "bricks<4>"
grid = ["ceil_div(ny * (nz // (16 // sizeof_T)), 128)", "ceil_div(nx, 4)"]
block = [128]
args = ["u", "rate", "v", "nx", "ny", "nz"]

[[launch]]
when = "not small and whole"
kernel = "vectors"
grid = ["ceil_div(ny * (nz // (16 // sizeof_T)), 128)", "ceil_div(nx, PLANES)"]
block = [128]
args = ["u", "rate", "v", "nx", "ny", "nz"]

[[launch]]
when = "nx * ny * nz > 2965820 and not whole"
kernel = "columns"
grid = ["ceil_div(ceil_div(ny, 4) * nz, 120)", "ceil_div(nx, PLANES)"]
block = [128]
args = ["u", "rate", "v", "nx", "ny", "nz"]
[[launch]]
when = "nx * ny * nz <= 2965820 and not whole"
kernel = "stencil_3d"
grid = ["ceil_div(nz, BLOCK_X)", "ceil_div(ny, BLOCK_Y)", "ceil_div(nx, BLOCK_Z)"]
block = ["BLOCK_X", "BLOCK_Y", "BLOCK_Z"]
args = ["u", "rate", "v", "nx", "ny", "nz"]
*/
constexpr int LANES = 16 / sizeof(T), ROWS = 4;
struct alignas(16) Vector { T at[LANES]; };

// Lanes follow each other through a plane, a vector each, and walk through PLANES planes. What is before, behind and in the
// middle stays in registers; what lies beside a vector comes from the neighbouring lanes, those above and below from
// the cache.
extern "C" __global__ void __launch_bounds__(128, 8) vectors(const T* __restrict__ u, const T* __restrict__ rate, T* __restrict__ v, int nx, int ny, int nz) {
    const int lane = threadIdx.x % 32, across = nz / LANES, all = ny * across, at = blockIdx.x * 128 + threadIdx.x;
    const bool mine = at < all;
    const int j = at / across, k = at - j * across, first = blockIdx.y * PLANES;
    const long long plane = (long long)ny * nz;
    const bool side = j == 0 || j >= ny - 1;
    const ACC r = load(rate[0]);
    const T* from = u + first * plane + (long long)at * LANES;
    T* to = v + first * plane + (long long)at * LANES;
    const int last = first + PLANES < nx ? first + PLANES : nx;
    Vector before = {}, middle = {}, behind = {};
    if (mine && first > 0) before = *reinterpret_cast<const Vector*>(from - plane);
    if (mine) middle = *reinterpret_cast<const Vector*>(from);
    if (mine && first + 1 < nx) behind = *reinterpret_cast<const Vector*>(from + plane);
#pragma unroll 1
    for (int i = first; i < last; i++, from += plane, to += plane) {
        Vector above = {}, below = {}, next = {}, out;
        T end = store(ACC(0));
        if (mine && i + 1 < last && i + 2 < nx) next = *reinterpret_cast<const Vector*>(from + 2 * plane);
        if (mine && !side) above = *reinterpret_cast<const Vector*>(from - nz), below = *reinterpret_cast<const Vector*>(from + nz);
        if (mine && ((lane == 0 && k > 0) || (lane == 31 && k < across - 1))) end = from[lane == 0 ? -1 : LANES];
        ACC left = __shfl_up_sync(0xffffffffu, load(middle.at[LANES - 1]), 1), right = __shfl_down_sync(0xffffffffu, load(middle.at[0]), 1);
        if (lane == 0) left = load(end);
        if (lane == 31) right = load(end);
        const bool inner = !side && i > 0 && i < nx - 1;
#pragma unroll
        for (int l = 0; l < LANES; l++) {
            const ACC own = load(middle.at[l]);
            const ACC around = load(before.at[l]) + load(behind.at[l]) + load(above.at[l]) + load(below.at[l]) +
                               (l > 0 ? load(middle.at[l > 0 ? l - 1 : 0]) : left) +
                               (l < LANES - 1 ? load(middle.at[l < LANES - 1 ? l + 1 : 0]) : right);
            const bool border = !inner || (l == 0 && k == 0) || (l == LANES - 1 && k == across - 1);
            out.at[l] = border ? middle.at[l] : store(own + r * (around - 6 * own));
        }
        if (mine) *reinterpret_cast<Vector*>(to) = out;
        before = middle, middle = behind, behind = next;
    }
}

// The same for small grids: DEEP planes of a vector, and all that they need is under way before the first is computed.
template <int DEEP> __global__ void __launch_bounds__(128) bricks(const T* __restrict__ u, const T* __restrict__ rate, T* __restrict__ v, int nx, int ny, int nz) {
    const int lane = threadIdx.x % 32, across = nz / LANES, all = ny * across, at = blockIdx.x * 128 + threadIdx.x;
    const bool mine = at < all;
    const int j = at / across, k = at - j * across, first = blockIdx.y * DEEP;
    const long long plane = (long long)ny * nz;
    const bool side = j == 0 || j >= ny - 1;
    const T* from = u + first * plane + (long long)at * LANES;
    T* to = v + first * plane + (long long)at * LANES;
    Vector middle[DEEP + 2], above[DEEP], below[DEEP];
    T end[DEEP];
#pragma unroll
    for (int e = 0; e < DEEP + 2; e++) {
        const int i = first + e - 1;
        middle[e] = Vector{};
        if (mine && i >= 0 && i < nx) middle[e] = *reinterpret_cast<const Vector*>(from + (e - 1) * plane);
    }
#pragma unroll
    for (int e = 0; e < DEEP; e++) {
        above[e] = below[e] = Vector{};
        end[e] = store(ACC(0));
        if (mine && first + e < nx) {
            if (!side) above[e] = *reinterpret_cast<const Vector*>(from + e * plane - nz), below[e] = *reinterpret_cast<const Vector*>(from + e * plane + nz);
            if ((lane == 0 && k > 0) || (lane == 31 && k < across - 1)) end[e] = from[e * plane + (lane == 0 ? -1 : LANES)];
        }
    }
    const ACC r = load(rate[0]);
#pragma unroll
    for (int e = 0; e < DEEP; e++) {
        const int i = first + e;
        const Vector here = middle[e + 1];
        ACC left = __shfl_up_sync(0xffffffffu, load(here.at[LANES - 1]), 1), right = __shfl_down_sync(0xffffffffu, load(here.at[0]), 1);
        if (lane == 0) left = load(end[e]);
        if (lane == 31) right = load(end[e]);
        const bool inner = !side && i > 0 && i < nx - 1;
        Vector out;
#pragma unroll
        for (int l = 0; l < LANES; l++) {
            const ACC own = load(here.at[l]);
            const ACC around = load(middle[e].at[l]) + load(middle[e + 2].at[l]) + load(above[e].at[l]) + load(below[e].at[l]) +
                               (l > 0 ? load(here.at[l > 0 ? l - 1 : 0]) : left) +
                               (l < LANES - 1 ? load(here.at[l < LANES - 1 ? l + 1 : 0]) : right);
            const bool border = !inner || (l == 0 && k == 0) || (l == LANES - 1 && k == across - 1);
            out.at[l] = border ? here.at[l] : store(own + r * (around - 6 * own));
        }
        if (mine && i < nx) *reinterpret_cast<Vector*>(to + e * plane) = out;
    }
}

// Planes whose rows are no whole vectors: ROWS rows per thread. Lanes follow each other along groups of ROWS rows; of a warp's,
// the first and the last only help their neighbours.
extern "C" __global__ void __launch_bounds__(128) columns(const T* __restrict__ u, const T* __restrict__ rate, T* __restrict__ v, int nx, int ny, int nz) {
    const int lane = threadIdx.x % 32, all = (ny + ROWS - 1) / ROWS * nz;
    int at = (blockIdx.x * 4 + threadIdx.x / 32) * 30 + lane - 1;
    const bool mine = lane > 0 && lane < 31 && at < all;
    at = at < 0 ? 0 : at < all ? at : all - 1;
    const int group = at / nz, k = at - group * nz, top = group * ROWS, first = blockIdx.y * PLANES;
    const long long plane = (long long)ny * nz;
    const bool side = k == 0 || k == nz - 1;
    const ACC r = load(rate[0]);
    const T* from = u + first * plane + (long long)top * nz + k;
    T* to = v + first * plane + (long long)top * nz + k;
    const int last = first + PLANES < nx ? first + PLANES : nx;
    ACC before[ROWS], middle[ROWS], behind[ROWS];
#pragma unroll
    for (int e = 0; e < ROWS; e++) {
        before[e] = middle[e] = behind[e] = 0;
        if (top + e < ny) {
            if (first > 0) before[e] = load(from[e * nz - plane]);
            middle[e] = load(from[e * nz]);
            if (first + 1 < nx) behind[e] = load(from[e * nz + plane]);
        }
    }
#pragma unroll 4
    for (int i = first; i < last; i++, from += plane, to += plane) {
        T next[ROWS], above = store(ACC(0)), below = above;
#pragma unroll
        for (int e = 0; e < ROWS; e++) {
            next[e] = store(ACC(0));
            if (top + e < ny && i + 2 < nx && i + 1 < last) next[e] = from[e * nz + 2 * plane];
        }
        if (top > 0) above = from[-nz];
        if (top + ROWS < ny) below = from[ROWS * nz];
        ACC left[ROWS], right[ROWS];
#pragma unroll
        for (int e = 0; e < ROWS; e += 2) {
            if constexpr (sizeof(T) == 2) {  // two rows at once
                const unsigned both = __byte_perm(__float_as_uint(middle[e]), __float_as_uint(middle[e + 1]), 0x7632);
                const unsigned from_left = __shfl_up_sync(0xffffffffu, both, 1), from_right = __shfl_down_sync(0xffffffffu, both, 1);
                left[e] = __uint_as_float(from_left << 16), left[e + 1] = __uint_as_float(from_left & 0xffff0000u);
                right[e] = __uint_as_float(from_right << 16), right[e + 1] = __uint_as_float(from_right & 0xffff0000u);
            } else {
                left[e] = __shfl_up_sync(0xffffffffu, middle[e], 1), left[e + 1] = __shfl_up_sync(0xffffffffu, middle[e + 1], 1);
                right[e] = __shfl_down_sync(0xffffffffu, middle[e], 1), right[e + 1] = __shfl_down_sync(0xffffffffu, middle[e + 1], 1);
            }
        }
        const bool inner = !side && i > 0 && i < nx - 1;
#pragma unroll
        for (int e = 0; e < ROWS; e++) {
            const int j = top + e;
            const ACC around = before[e] + behind[e] + (e > 0 ? middle[e > 0 ? e - 1 : 0] : load(above)) +
                               (e < ROWS - 1 ? middle[e < ROWS - 1 ? e + 1 : 0] : load(below)) + left[e] + right[e];
            const ACC value = middle[e] + r * (around - 6 * middle[e]);
            if (mine && j < ny) to[e * nz] = store(inner && j > 0 && j < ny - 1 ? value : middle[e]);
        }
#pragma unroll
        for (int e = 0; e < ROWS; e++) before[e] = middle[e], middle[e] = behind[e], behind[e] = load(next[e]);
    }
}

// One thread per point.
extern "C" __global__ void stencil_3d(const T* u, const T* rate, T* v, int nx, int ny, int nz) {
    int i = blockIdx.z * blockDim.z + threadIdx.z;
    int j = blockIdx.y * blockDim.y + threadIdx.y;
    int k = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= nx || j >= ny || k >= nz) return;
    long long row = nz, plane = row * ny, at = i * plane + j * row + k;
    if (i == 0 || j == 0 || k == 0 || i == nx - 1 || j == ny - 1 || k == nz - 1) {
        v[at] = u[at];
        return;
    }
    ACC middle = load(u[at]);
    ACC around = load(u[at - plane]) + load(u[at + plane]) + load(u[at - row]) + load(u[at + row]);
    around += load(u[at - 1]) + load(u[at + 1]);
    v[at] = store(middle + load(rate[0]) * (around - 6 * middle));
}
