constexpr int PART = 16, PARTS = 4, RASTER = 16;  // steps whose sums tensor cores keep, sums at least, rows of tiles in a band
typedef unsigned long long u64;

// fp32 on tensor cores: each number is hi + lo, two of TF32, and lo hi + hi lo + hi hi make a product (what lo lo would
// add is below the last bit). A block computes 128 indices of b x 256 of a. wgmma takes b from shared memory, where it
// must lie along k, and a, its first factor, from registers. Warp groups: two consumers, 128 indices of a each, which
// split their part of a as they read it; a converter, which splits b in shared memory; a producer.
// Tensor cores cut off what sums lose, always towards zero, which adds up: after PART steps, and PARTS times at least, the
// sums go to c (stored, then added with rounding), and new ones begin.
constexpr int STEP = 32, RING = 3;
constexpr int S_BYTES = 128 * STEP * 4;                  // 16384, hi; as much for lo behind it
constexpr int R_BYTES = 256 * STEP * 4;                  // 32768
constexpr int STAGE_BYTES = 2 * S_BYTES + R_BYTES;       // 65536

__device__ __forceinline__ void init(unsigned barrier, int count) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(count) : "memory");
}
__device__ __forceinline__ void expect(unsigned barrier, int bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}
__device__ __forceinline__ void arrive(unsigned barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
__device__ __forceinline__ void wait(unsigned barrier, int parity) {
    for (int done = 0; !done;)
        asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.b32 %0, 1, 0, p; }"
                     : "=r"(done) : "r"(barrier), "r"(parity) : "memory");
}
__device__ __forceinline__ void fetch(unsigned to, const CUtensorMap* map, int x, int y, unsigned barrier) {
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];"
                 ::"r"(to), "l"(map), "r"(x), "r"(y), "r"(barrier) : "memory");
}
__device__ __forceinline__ float4 read4(unsigned from) {
    float4 v;
    asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];" : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w) : "r"(from) : "memory");
    return v;
}
__device__ __forceinline__ float read1(unsigned from) {
    float v;
    asm volatile("ld.shared.f32 %0, [%1];" : "=f"(v) : "r"(from) : "memory");
    return v;
}
__device__ __forceinline__ void write4(unsigned to, float4 v) {
    asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(to), "f"(v.x), "f"(v.y), "f"(v.z), "f"(v.w) : "memory");
}
// Rounded to 11 bits. What this makes of numbers that are not finite, or near it, comes out as no finite sum: see repair.
__device__ __forceinline__ float high(float x) { return __uint_as_float((__float_as_uint(x) + 0x1000u) & 0xffffe000u); }
__device__ __forceinline__ float4 high(float4 v) { return make_float4(high(v.x), high(v.y), high(v.z), high(v.w)); }
__device__ __forceinline__ float4 less(float4 v, float4 w) { return make_float4(v.x - w.x, v.y - w.y, v.z - w.z, v.w - w.w); }

// K-major, 128-byte swizzle: groups of 8 rows are 1024 bytes apart.
__device__ __forceinline__ u64 tile_of(unsigned address) {
    return (u64)((address & 0x3ffff) >> 4) | 1ull << 16 | 64ull << 32 | 1ull << 62;
}
#define FOUR(I) "+f"(d[I]), "+f"(d[I + 1]), "+f"(d[I + 2]), "+f"(d[I + 3])
#define SIXTEEN(I) FOUR(I), FOUR(I + 4), FOUR(I + 8), FOUR(I + 12)
__device__ __forceinline__ void multiply(float (&d)[64], const float (&r)[4], u64 s, int add) {  // 64 of a x 128 of b, 8 of k
    asm volatile(
        "{ .reg .pred p; setp.ne.b32 p, %69, 0; "
        "wgmma.mma_async.sync.aligned.m64n128k8.f32.tf32.tf32 "
        "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
        "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
        "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
        "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
        "{%64, %65, %66, %67}, %68, p, 1, 1; }"
        : SIXTEEN(0), SIXTEEN(16), SIXTEEN(32), SIXTEEN(48)
        : "r"(__float_as_uint(r[0])), "r"(__float_as_uint(r[1])), "r"(__float_as_uint(r[2])), "r"(__float_as_uint(r[3])),
          "l"(s), "r"(add));
}
// Tiles in bands of RASTER along b, so that those under way share rows and columns.
__device__ __forceinline__ void place(int tile, int down, int across, int& of_s, int& of_r) {
    const int band = RASTER * across, first = tile / band * RASTER, rest = tile % band;
    const int height = min(down - first, RASTER);
    of_s = (first + rest % height) * 128;
    of_r = rest / height * 256;
}

