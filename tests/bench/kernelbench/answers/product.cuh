}

// A product as it is written, in sums of 64 terms, so that long ones lose little.
__device__ __forceinline__ float dot(const float* a, const float* b, int k) {
    float sum = 0;
    for (int from = 0; from < k; from += 64) {
        float part = 0;
        for (int l = from; l < min(from + 64, k); l++) part += a[l] * b[l];
        sum += part;
    }
    return sum;
}

__device__ __forceinline__ void sums_of(const float* from, float& v, float& w) {  // past the first-level cache
    asm volatile("ld.relaxed.gpu.global.v2.f32 {%0, %1}, [%2];" : "=f"(v), "=f"(w) : "l"(from) : "memory");
}
__device__ __forceinline__ void mend(float* sum, const float* a, const float* b, int k) {
    float v;
    asm volatile("ld.relaxed.gpu.global.f32 %0, [%1];" : "=f"(v) : "l"(sum) : "memory");
    if (v * 0 == 0) return;
    v = dot(a, b, k);
    asm volatile("st.relaxed.gpu.global.f32 [%0], %1;" ::"l"(sum), "f"(v) : "memory");
}

extern "C" __global__ void __launch_bounds__(512, 1) multiply_tiles(
    const CUtensorMap* b_tiles, const CUtensorMap* a_tiles, const float* a, const float* b,
    const float* bias, float* c, int m, int n, int k) {
    extern __shared__ __align__(16) unsigned char memory[];
    __shared__ alignas(8) u64 barriers[3 * RING];
    const unsigned tiles = ((unsigned)__cvta_generic_to_shared(memory) + 1023) & ~1023u;
    const unsigned full = (unsigned)__cvta_generic_to_shared(barriers), split = full + 8 * RING, empty = split + 8 * RING;
    const int steps = (k + STEP - 1) / STEP, down = (n + 127) / 128, across = (m + 255) / 256;
    const int count = down * across;
    if (threadIdx.x == 0) {
        for (int stage = 0; stage < RING; stage++) {
            init(full + 8 * stage, 1);
            init(split + 8 * stage, 4);  // the converter's warps
            init(empty + 8 * stage, 8);  // the consumers'
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    }
    __syncthreads();

    const int group = __shfl_sync(0xffffffffu, (int)threadIdx.x / 128, 0), lane = threadIdx.x % 32;  // uniform in a warp
    const int warp = threadIdx.x % 128 / 32;
    int stage = 0, parity = 0;
    if (group == 3) {  // the producer
        asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
        if (threadIdx.x == 384) {
            for (int tile = blockIdx.x; tile < count; tile += gridDim.x) {
                int of_s, of_r;
                place(tile, down, across, of_s, of_r);
                for (int step = 0; step < steps; step++) {
                    wait(empty + 8 * stage, parity ^ 1);  // the first round does not wait
                    const unsigned to = tiles + STAGE_BYTES * stage, ready = full + 8 * stage;
                    expect(ready, S_BYTES + R_BYTES);
                    fetch(to, b_tiles, step * STEP, of_s, ready);
                    fetch(to + 2 * S_BYTES, a_tiles, step * STEP, of_r, ready);
                    if (++stage == RING) stage = 0, parity ^= 1;
                }
            }
        }
    } else if (group == 2) {  // the converter
        asm volatile("setmaxnreg.dec.sync.aligned.u32 56;");
        const int thread = threadIdx.x % 128;
        for (int tile = blockIdx.x; tile < count; tile += gridDim.x)
            for (int step = 0; step < steps; step++) {
                const unsigned at = tiles + STAGE_BYTES * stage;
                wait(full + 8 * stage, parity);
#pragma unroll
                for (int half = 0; half < 2; half++) {  // element by element: the swizzle does not matter
                    float4 v[4];
                    const unsigned from = at + half * (S_BYTES / 2) + thread * 16;
#pragma unroll
                    for (int i = 0; i < 4; i++) v[i] = read4(from + i * 2048);
#pragma unroll
                    for (int i = 0; i < 4; i++) {
                        const float4 hi = high(v[i]);
                        write4(from + i * 2048, hi);
                        write4(from + i * 2048 + S_BYTES, less(v[i], hi));
                    }
                }
                asm volatile("fence.proxy.async.shared::cta;" ::: "memory");  // what was written, wgmma will read
                __syncwarp();
                if (lane == 0) arrive(split + 8 * stage);
                if (++stage == RING) stage = 0, parity ^= 1;
            }
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 208;");
        float d[2][64];
        const int g = lane / 4, t = lane % 4;
        // Rows g, g + 8 (of d[0]), g + 16, g + 24 (of d[1]) of the warp's 32; each time 8 rows of 16 bytes: no conflicts.
        const unsigned mine = 2 * S_BYTES + (group * 4 + warp) * 4096 + g * 128 + t * 4;
        const int r_lane = group * 128 + warp * 32 + g;
        constexpr int R_STRIDE = 8;
        const int part = min(PART, max((steps + PARTS - 1) / PARTS, min(2, (steps + 1) / 2)));  // steps, of short sums fewer
        for (int tile = blockIdx.x; tile < count; tile += gridDim.x) {
            int of_s, of_r;
            place(tile, down, across, of_s, of_r);
            const int s_lane = of_s + t * 2;
            of_r += r_lane;
#pragma unroll
            for (int i = 0; i < 64; i++) d[0][i] = d[1][i] = 0;
            for (int step = 0; step < steps;) {
                const bool first = step == 0;
                const int end = min(step + part, steps);
                int add = 0;
                for (; step < end; step++) {
                    const unsigned at = tiles + STAGE_BYTES * stage;
                    const u64 s_hi = tile_of(at), s_lo = tile_of(at + S_BYTES);
                    wait(full + 8 * stage, parity);
#pragma unroll
                    for (int l = 0; l < STEP / 8; l++) {  // 8 of k: 32 bytes of b's rows
                        float x[2][4], hi[2][4], lo[2][4];
#pragma unroll
                        for (int i = 0; i < 4; i++) {
                            x[i / 2][i % 2] = read1(at + mine + i * 1024 + ((2 * l ^ g) << 4));
                            x[i / 2][i % 2 + 2] = read1(at + mine + i * 1024 + ((2 * l + 1 ^ g) << 4));
                        }
#pragma unroll
                        for (int i = 0; i < 8; i++) {
                            hi[i / 4][i % 4] = high(x[i / 4][i % 4]);
                            lo[i / 4][i % 4] = x[i / 4][i % 4] - hi[i / 4][i % 4];
                        }
                        if (l == 0) wait(split + 8 * stage, parity);
                        asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
                        multiply(d[0], lo[0], s_hi + 2 * l, l ? 1 : add);
                        multiply(d[1], lo[1], s_hi + 2 * l, l ? 1 : add);
                        multiply(d[0], hi[0], s_lo + 2 * l, 1);
                        multiply(d[1], hi[1], s_lo + 2 * l, 1);
                        multiply(d[0], hi[0], s_hi + 2 * l, 1);
                        multiply(d[1], hi[1], s_hi + 2 * l, 1);
                        asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
                        if (l < STEP / 8 - 1) asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");
                    }
                    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");  // the other group has work meanwhile
#pragma unroll
                    for (int i = 0; i < 128; i++) asm volatile("" : "+f"(d[i / 64][i % 64])::"memory");
                    if (lane == 0) arrive(empty + 8 * stage);
                    add = 1;
                    if (++stage == RING) stage = 0, parity ^= 1;
                }
                float* to = c + (long long)of_r * n + s_lane;
                asm volatile("" : "+l"(to));  // or all addresses would be computed before the loop, and kept
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    if (of_r + R_STRIDE * i < m) {
#pragma unroll
                        for (int j = 0; j < 16; j++)
                            if (s_lane + 8 * j < n) {
                                const float v = d[i / 2][4 * j + i % 2 * 2], w = d[i / 2][4 * j + i % 2 * 2 + 1];
                                if (first) asm volatile("st.global.v2.f32 [%0], {%1, %2};" ::"l"(to + 8 * j), "f"(v), "f"(w) : "memory");
                                else asm volatile("red.relaxed.gpu.global.add.v2.f32 [%0], {%1, %2};" ::"l"(to + 8 * j), "f"(v), "f"(w) : "memory");
                            }
                    }
                    to += (long long)R_STRIDE * n;
                }
            }
            // Each thread finishes what it added up. Infinity times lo = 0 is NaN: a sum that is not finite is computed as a
            // plain product has it.
#pragma unroll 1
            for (int i = 0; i < 4; i++) {
                const int y = of_r + R_STRIDE * i;
                if (y >= m) break;
                float* to = c + (long long)y * n + s_lane;
                const float* of_bias = bias + s_lane;
                asm volatile("" : "+l"(to), "+l"(of_bias));  // as above
                float v[16], w[16], bad = 0;
#pragma unroll
                for (int j = 0; j < 16; j++) {
                    v[j] = w[j] = 0;
                    if (s_lane + 8 * j < n) sums_of(to + 8 * j, v[j], w[j]);
                    bad += (v[j] + w[j]) * 0;  // NaN where not both are finite
                }
                if (bad != 0) {
#pragma unroll 1
                    for (int j = 0; j < 32; j++) {
                        const int x = j / 2 * 8 + j % 2;
                        if (s_lane + x < n) mend(to + x, a + (long long)y * k, b + (long long)(s_lane + x) * k, k);
                    }
#pragma unroll
                    for (int j = 0; j < 16; j++)
                        if (s_lane + 8 * j < n) sums_of(to + 8 * j, v[j], w[j]);
                }
#pragma unroll
                for (int j = 0; j < 16; j++)
                    if (s_lane + 8 * j < n) {
                        const float2 add = *(const float2*)(of_bias + 8 * j);
                        *(float2*)(to + 8 * j) = make_float2(finished(v[j], add.x), finished(w[j], add.y));
                    }
            }
            __syncwarp();  // wgmma wants all of the warp
        }
    }
}

// Other sizes, and those too small to occupy the multiprocessors with whole tiles.
extern "C" __global__ void multiply_any(const float* a, const float* b, const float* bias, float* c, int m, int n, int k) {
    const int i = blockIdx.y * 8 + threadIdx.y, j = blockIdx.x * 32 + threadIdx.x;
    if (i >= m || j >= n) return;
    c[(long long)i * n + j] = finished(dot(a + (long long)i * k, b + (long long)j * k, k), bias[j]);
}
