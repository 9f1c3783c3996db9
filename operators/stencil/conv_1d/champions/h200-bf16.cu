/*! evo
[tune]
BLOCK = [256, 64, 128, 512, 1024]

[[launch]]                         # 16 bits: products on tensor cores
when = "(n > 131071 or taps > 90) and (sizeof_T == 2 and taps <= 256 and n >= 2000000)"
kernel = "tensor<8>"
grid = ["min(ceil_div(n - taps + 1, 4096), sm_count * 8)"]
block = [128]
args = ["x", "w", "y", "n", "taps"]

[[launch]]
when = "(n > 131071 or taps > 90) and (sizeof_T == 2 and taps <= 256 and n >= 16384 and n < 2000000)"
kernel = "tensor<2>"
grid = ["min(ceil_div(n - taps + 1, 1024), sm_count * 8)"]
block = [128]
args = ["x", "w", "y", "n", "taps"]

[[launch]]
when = "(n > 131071 or taps > 90) and (n >= 1000000 and not (sizeof_T == 2 and taps <= 256))"
kernel = "scalar<16>"
grid = ["ceil_div(n - taps + 1, 2048)"]
block = [128]
args = ["x", "w", "y", "n", "taps"]

[[launch]]
when = "(n > 131071 or taps > 90) and (n < 1000000 and not (sizeof_T == 2 and taps <= 256 and n >= 16384))"
kernel = "scalar<4>"
grid = ["ceil_div(n - taps + 1, 512)"]
block = [128]
args = ["x", "w", "y", "n", "taps"]
[[launch]]
when = "n <= 131071 and taps <= 90"
kernel = "conv_1d"
grid = ["ceil_div(n - taps + 1, BLOCK)"]
block = ["BLOCK"]
args = ["x", "w", "y", "n", "taps"]
*/
constexpr int LANES = 16 / sizeof(T), STEPS = 17, MOST_TAPS = 16 * STEPS - 16;
struct alignas(16) Vector { T at[LANES]; };

// PTX begin
// d += p q, 16 x 16 times 16 x 8.
__device__ __forceinline__ void product16(float (&d)[4], const unsigned (&p)[4], unsigned q0, unsigned q1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(p[0]), "r"(p[1]), "r"(p[2]), "r"(p[3]), "r"(q0), "r"(q1));
}
// PTX end

__device__ __forceinline__ bool holds_none(unsigned u) {  // infinities and NaN, in one of two
    return (u & 0x7f80u) == 0x7f80u || (u & 0x7f800000u) == 0x7f800000u;
}
__device__ __forceinline__ Vector vector_of(const T* x, long long at, int n) {
    Vector v;
    if (at + LANES <= n) return *reinterpret_cast<const Vector*>(x + at);
#pragma unroll
    for (int i = 0; i < LANES; i++) v.at[i] = at + i < n ? x[at + i] : store(ACC(0));
    return v;
}

// y[16 j + r] = sum_k F[r, k] x[16 j + k], with F[r, k] = w[k - r] where that exists, else 0: a product of matrices, of which
// the second has overlapping columns. Step s takes k from 16 s on, that is column j + s. A warp has NT tiles of eight
// columns, and columns that serve two steps are loaded once. Zeros of F meet values that do not belong to a sum: where
// one of those is not finite, the block adds up one by one.
template <int NT> __global__ void __launch_bounds__(128) tensor(const T* __restrict__ x, const T* __restrict__ w, T* __restrict__ y, int n, int taps) {
    if constexpr (sizeof(T) == 2) {
        constexpr int OUT = 512 * NT;
        __shared__ uint4 filter[STEPS * 32];
        __shared__ uint4 signal[OUT / 8 + 2 * STEPS];
        __shared__ T weights[MOST_TAPS + 48];
        const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, t = lane % 4;
        const int steps = (taps + 30) / 16, results = n - taps + 1, tiles = (results + OUT - 1) / OUT;
        for (int i = threadIdx.x; i < MOST_TAPS + 48; i += 128) weights[i] = i >= 16 && i < 16 + taps ? w[i - 16] : store(ACC(0));
        __syncthreads();
        for (int i = threadIdx.x; i < steps * 32; i += 128) {
            // Within a step the order of k is ours: what belongs to one lane lies together.
            const T* at = weights + 16 + i / 32 * 16 + i % 4 * 4 - i % 32 / 4;  // row g: k - g
            unsigned u[4];
#pragma unroll
            for (int p = 0; p < 4; p++) {
                const T* pair = at + p / 2 * 2 - p % 2 * 8;
                u[p] = *reinterpret_cast<const unsigned short*>(pair) | (unsigned)*reinterpret_cast<const unsigned short*>(pair + 1) << 16;
            }
            filter[i] = make_uint4(u[0], u[1], u[2], u[3]);
        }
        for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
            const long long begin = (long long)tile * OUT;
            bool odd = false;
            for (int v = threadIdx.x; v < OUT / 8 + 2 * steps; v += 128) {
                const Vector in = vector_of(x, begin + v * 8, n);
                const uint4 u = *reinterpret_cast<const uint4*>(&in);
                odd |= holds_none(u.x) || holds_none(u.y) || holds_none(u.z) || holds_none(u.w);
                signal[v] = u;
            }
            if (__syncthreads_or(odd)) {
                const T* values = reinterpret_cast<const T*>(signal);
                for (int o = threadIdx.x; o < OUT && begin + o < results; o += 128) {
                    ACC sum = 0;
                    for (int l = 0; l < taps; l++) sum += load(values[o + l]) * load(weights[16 + l]);
                    y[begin + o] = store(sum);
                }
                __syncthreads();
                continue;
            }
            float d[NT][4] = {};
            const uint2* columns = reinterpret_cast<const uint2*>(signal) + (warp * NT * 8 + g) * 4 + t;
            for (int s = 0; s < 8 && s < steps; s++) {
                uint2 q[NT + 2];
#pragma unroll
                for (int i = 0; i < NT; i++) q[i] = columns[(8 * i + s) * 4];
#pragma unroll
                for (int m = 0; m < 3; m++) {
                    if (s + 8 * m < steps) {
                        if (m) q[NT - 1 + m] = columns[(8 * (NT - 1 + m) + s) * 4];
                        const uint4 f = filter[(s + 8 * m) * 32 + lane];
                        const unsigned p[4] = {f.x, f.y, f.z, f.w};
#pragma unroll
                        for (int i = 0; i < NT; i++) product16(d[i], p, q[i + m].x, q[i + m].y);
                    }
                }
            }
            __syncthreads();
            T* out = reinterpret_cast<T*>(signal) + warp * NT * 128;
#pragma unroll
            for (int i = 0; i < NT; i++)
#pragma unroll
                for (int h = 0; h < 4; h++) out[16 * (8 * i + 2 * t + h % 2) + g + h / 2 * 8] = store(d[i][h]);
            __syncthreads();
            for (int v = threadIdx.x; v < OUT / 8; v += 128) {
                const long long at = begin + v * 8;
                if (at + 8 <= results) {
                    *reinterpret_cast<uint4*>(y + at) = signal[v];
                } else {
                    for (int i = 0; i < 8 && at + i < results; i++) y[at + i] = reinterpret_cast<const T*>(signal)[v * 8 + i];
                }
            }
            __syncthreads();
        }
    }
}

// EACH neighbouring results per thread: EACH values of the signal and EACH weights are loaded for EACH * EACH products.
template <int EACH> __global__ void __launch_bounds__(128) scalar(const T* __restrict__ x, const T* __restrict__ w, T* __restrict__ y, int n, int taps) {
    constexpr int RESULTS = 128 * EACH, CHUNK = 256, GAP = EACH == 16 ? 4 : 0, PITCH = EACH + GAP;  // gaps keep lanes off one bank
    constexpr int SIGNAL = (RESULTS + CHUNK) / EACH * PITCH;
    __shared__ float4 signal_vectors[SIGNAL / 4], filter_vectors[CHUNK / 4];
    float *signal = reinterpret_cast<float*>(signal_vectors), *filter = reinterpret_cast<float*>(filter_vectors);
    const long long begin = (long long)blockIdx.x * RESULTS;
    const int results = n - taps + 1;
    float sums[EACH] = {};
    for (int first = 0; first < taps; first += CHUNK) {
        const int count = taps - first < CHUNK ? taps - first : CHUNK;
        if (first) __syncthreads();
        for (int v = threadIdx.x; v < (RESULTS + count + LANES - 1) / LANES; v += 128) {
            const Vector in = vector_of(x, begin + first + v * LANES, n);
#pragma unroll
            for (int i = 0; i < LANES; i += 4) {
                const int at = v * LANES + i;
                signal_vectors[(at + at / EACH * GAP) / 4] = make_float4(load(in.at[i]), load(in.at[i + 1]), load(in.at[i + 2]), load(in.at[i + 3]));
            }
        }
        for (int l = threadIdx.x; l < count; l += 128) filter[l] = load(w[first + l]);
        __syncthreads();
        const float* mine = signal + threadIdx.x * PITCH;
        float window[2 * EACH];
#pragma unroll
        for (int i = 0; i < EACH; i += 4) *reinterpret_cast<float4*>(window + i) = *reinterpret_cast<const float4*>(mine + i);
        int l = 0;
#pragma unroll 2
        for (; l + EACH <= count; l += EACH) {
            mine += PITCH;
#pragma unroll
            for (int i = 0; i < EACH; i += 4) {
                const float4 more = *reinterpret_cast<const float4*>(mine + i), weights = *reinterpret_cast<const float4*>(filter + l + i);
                window[EACH + i] = more.x, window[EACH + i + 1] = more.y, window[EACH + i + 2] = more.z, window[EACH + i + 3] = more.w;
                const float weight[4] = {weights.x, weights.y, weights.z, weights.w};
#pragma unroll
                for (int k = 0; k < 4; k++)
#pragma unroll
                    for (int e = 0; e < EACH; e++) sums[e] += window[i + k + e] * weight[k];
            }
#pragma unroll
            for (int i = 0; i < EACH; i++) window[i] = window[EACH + i];
        }
        if (l < count) {
            mine += PITCH;
#pragma unroll
            for (int i = 0; i < EACH; i++) window[EACH + i] = mine[i];
#pragma unroll
            for (int k = 0; k < EACH; k++) {
                if (l + k < count) {
                    const float weight = filter[l + k];
#pragma unroll
                    for (int e = 0; e < EACH; e++) sums[e] += window[k + e] * weight;
                }
            }
        }
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < EACH; i += 4)
        signal_vectors[(threadIdx.x * PITCH + i) / 4] = make_float4(sums[i], sums[i + 1], sums[i + 2], sums[i + 3]);
    __syncthreads();
    for (int v = threadIdx.x; v < RESULTS / LANES; v += 128) {
        Vector out;
        const long long at = begin + v * LANES;
#pragma unroll
        for (int i = 0; i < LANES; i++) {
            const int o = v * LANES + i;
            out.at[i] = store(signal[o + o / EACH * GAP]);
        }
        if (at + LANES <= results) {
            *reinterpret_cast<Vector*>(y + at) = out;
        } else {
#pragma unroll
            for (int i = 0; i < LANES; i++)
                if (at + i < results) y[at + i] = out.at[i];
        }
    }
}

// One thread per result.
extern "C" __global__ void conv_1d(const T* x, const T* w, T* y, int n, int taps) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n - taps + 1) return;
    ACC sum = 0;
    for (int l = 0; l < taps; l++) sum += load(x[i + l]) * load(w[l]);
    y[i] = store(sum);
}
