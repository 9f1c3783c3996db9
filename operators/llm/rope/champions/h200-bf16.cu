/*! evo
[tune]
BLOCK_X = [16, 8, 32, 64]
BLOCK_Y = [16, 2, 4, 8]
BLOCK = [256, 128, 512]
EACH = [4, 2, 8]

[[launch]]
when = "rows * pairs <= 741454"
kernel = "rope"
grid = ["ceil_div(pairs, BLOCK_X)", "min(ceil_div(rows, BLOCK_Y), 65535)"]
block = ["BLOCK_X", "BLOCK_Y"]
args = ["x", "y", "base", "rows", "pairs"]
[[launch]]
when = "(rows * pairs > 741454) and (pairs % (8 // sizeof_T) == 0)"
kernel = "rope_2<WIDE>"
grid = ["ceil_div(pairs // (8 // sizeof_T), min(BLOCK, next_pow2(pairs // (8 // sizeof_T))))", "max(1, min(65535, ceil_div(rows, BLOCK // min(BLOCK, next_pow2(pairs // (8 // sizeof_T)))), 8 * sm_count // ceil_div(pairs // (8 // sizeof_T), min(BLOCK, next_pow2(pairs // (8 // sizeof_T))))))"]
block = ["min(BLOCK, next_pow2(pairs // (8 // sizeof_T)))", "BLOCK // min(BLOCK, next_pow2(pairs // (8 // sizeof_T)))"]
args = ["x", "y", "base", "rows", "pairs"]

[[launch]]
when = "(rows * pairs > 741454) and (pairs % (8 // sizeof_T) != 0)"
kernel = "rope_2<1>"
grid = ["ceil_div(pairs, min(BLOCK, next_pow2(pairs)))", "max(1, min(65535, ceil_div(rows, BLOCK // min(BLOCK, next_pow2(pairs))), 8 * sm_count // ceil_div(pairs, min(BLOCK, next_pow2(pairs)))))"]
block = ["min(BLOCK, next_pow2(pairs))", "BLOCK // min(BLOCK, next_pow2(pairs))"]
args = ["x", "y", "base", "rows", "pairs"]
*/

// One thread per pair; where there are more rows than a grid has, a thread takes several.
extern "C" __global__ void rope(const T* x, T* y, ACC base, int rows, int pairs) {
    int c = blockIdx.x * blockDim.x + threadIdx.x;
    if (c >= pairs) return;
    for (int r = blockIdx.y * blockDim.y + threadIdx.y; r < rows; r += gridDim.y * blockDim.y) {
        ACC angle = r * powf(base, -ACC(c) / pairs);
        long long at = 2 * ((long long)r * pairs + c);
        ACC even = load(x[at]), odd = load(x[at + 1]);
        ACC cosine = cosf(angle), sine = sinf(angle);
        y[at] = store(even * cosine - odd * sine);
        y[at + 1] = store(even * sine + odd * cosine);
    }
}

// A thread keeps the frequencies of PAIRS neighbouring pairs and walks down the rows, EACH at a time. Angles are reduced
// by two fused steps; what is left goes to polynomials, or to the hardware's functions where results have 16 bits.
constexpr int WIDE = 8 / sizeof(T);
// PTX begin
__device__ __forceinline__ void fast_turn(float r, float& sine, float& cosine) {
    asm("sin.approx.ftz.f32 %0, %1;" : "=f"(sine) : "f"(r));
    asm("cos.approx.ftz.f32 %0, %1;" : "=f"(cosine) : "f"(r));
}
// PTX end
__device__ __forceinline__ void turn(float angle, float& sine, float& cosine) {
    if (!(fabsf(angle) < 1e6f)) {
        sincosf(angle, &sine, &cosine);
        return;
    }
    if (sizeof(T) == 2) {
        const float n = rintf(angle * 0.15915494309f);
        float r = fmaf(n, -6.28318548202514648f, angle);
        r = fmaf(n, 1.74845553146e-7f, r);
        fast_turn(r, sine, cosine);
        return;
    }
    const float n = rintf(angle * 0.636619772367f);
    float r = fmaf(n, -1.57079637050628662f, angle);
    r = fmaf(n, 4.37113882867e-8f, r);
    const float z = r * r;
    float s = fmaf(z, -1.9515295891e-4f, 8.3321608736e-3f);
    s = fmaf(s, z, -1.6666654611e-1f);
    s = fmaf(s * z, r, r);
    float c = fmaf(z, 2.443315711809948e-5f, -1.388731625493765e-3f);
    c = fmaf(c, z, 4.166664568298827e-2f);
    c = fmaf(c, z, -0.5f);
    c = fmaf(c, z, 1.0f);
    const int quadrant = int(n);
    sine = quadrant & 1 ? c : s;
    cosine = quadrant & 1 ? s : c;
    if (quadrant & 2) sine = -sine;
    if (quadrant + 1 & 2) cosine = -cosine;
}

template <int PAIRS> struct alignas(2 * PAIRS * sizeof(T)) Values {
    T at[2 * PAIRS];
};

template <int PAIRS> __global__ void __launch_bounds__(BLOCK) rope_2(const T* x, T* y, ACC base, int rows, int pairs) {
    const int c = (blockIdx.x * blockDim.x + threadIdx.x) * PAIRS, step = gridDim.y * blockDim.y;
    if (c >= pairs) return;
    ACC frequency[PAIRS];
#pragma unroll
    for (int p = 0; p < PAIRS; p++) frequency[p] = powf(base, -ACC(c + p) / pairs);
    for (int first = blockIdx.y * blockDim.y + threadIdx.y; first < rows; first += EACH * step) {
        Values<PAIRS> values[EACH];
#pragma unroll
        for (int e = 0; e < EACH; e++) {
            const int r = first + e * step;
            if (r < rows) values[e] = *reinterpret_cast<const Values<PAIRS>*>(x + 2 * ((long long)r * pairs + c));
        }
#pragma unroll
        for (int e = 0; e < EACH; e++) {
            const int r = first + e * step;
            if (r >= rows) break;
#pragma unroll
            for (int p = 0; p < PAIRS; p++) {
                ACC sine, cosine;
                turn(r * frequency[p], sine, cosine);
                const ACC even = load(values[e].at[2 * p]), odd = load(values[e].at[2 * p + 1]);
                values[e].at[2 * p] = store(even * cosine - odd * sine);
                values[e].at[2 * p + 1] = store(even * sine + odd * cosine);
            }
            *reinterpret_cast<Values<PAIRS>*>(y + 2 * ((long long)r * pairs + c)) = values[e];
        }
    }
}
