/*! evo
[[buffer]]
name = "scratch"
dtype = "int32"
shape = [64]

[[launch]]
kernel = "clear"
grid = [1]
block = [64]
args = ["scratch"]

[[launch]]
kernel = "check"
grid = ["ceil_div(n, 80)"]
block = [16, 5]
args = ["x", "b", "y", "alpha", "scratch", "n"]
*/
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_pipeline.h>
#define EXPECT(...) do { if (!(__VA_ARGS__)) __trap(); } while (0)
namespace cg = cooperative_groups;

// y = alpha x + b, after all that follows has proved right. 80 threads: two warps and half of one.

__device__ void check_warp(int lane, unsigned all) {
    const int count = __popc(all);
    EXPECT(__shfl_sync(all, lane * 10, 5) == 50);
    EXPECT(__shfl_sync(all, lane, 9, 8) == (lane & ~7) + 1);
    EXPECT(__shfl_up_sync(all, lane, 3) == (lane < 3 ? lane : lane - 3));
    EXPECT(__shfl_up_sync(all, lane, 3, 8) == (lane % 8 < 3 ? lane : lane - 3));
    EXPECT(__shfl_xor_sync(all, lane, 5) == (lane ^ 5));
    EXPECT(__shfl_xor_sync(all, lane, 9, 8) == (lane % 16 < 8 ? lane : lane ^ 9));
    const int down = __shfl_down_sync(all, lane, 4, 16);
    EXPECT(down == (lane % 16 < 12 ? lane + 4 : lane));
    EXPECT(__shfl_sync(all, 0.5 * lane, 7) == 3.5);
    EXPECT(__shfl_sync(all, (long long)lane << 40, 3) == 3ll << 40);
    EXPECT(__ballot_sync(all, lane % 3 == 0) == (0x49249249u & all));
    EXPECT(__any_sync(all, lane == 7) && !__any_sync(all, lane == 77));
    EXPECT(__all_sync(all, lane < 32) && !__all_sync(all, lane != 7));
    EXPECT(__match_any_sync(all, lane / 4) == 0xfu << (lane & ~3));
    int same = 7;
    EXPECT(__match_all_sync(all, 5, &same) == all && same);
    EXPECT(__match_all_sync(all, lane, &same) == 0 && !same);
    EXPECT(__reduce_add_sync(all, lane) == count * (count - 1) / 2);
    EXPECT(__reduce_max_sync(all, -lane) == 0 && __reduce_min_sync(all, -lane) == 1 - count);
    EXPECT(__reduce_max_sync(all, (unsigned)-lane) == 0xffffffffu && __reduce_min_sync(all, (unsigned)lane) == 0);
    EXPECT(__reduce_or_sync(all, 1u << lane) == all && __reduce_and_sync(all, ~0u - (1u << lane)) == ~all);
    EXPECT(__reduce_xor_sync(all, 1u) == 0);
    if (lane & 1) {
        EXPECT(__reduce_add_sync(all & 0xaaaaaaaau, 1u) == count / 2);
        EXPECT(__shfl_sync(all & 0xaaaaaaaau, lane, 3) == 3);
    } else {
        EXPECT(__ballot_sync(all & 0x55555555u, 1) == (all & 0x55555555u));
    }
    __syncwarp(all);
}

__device__ void check_groups(int thread, int lane, int warps) {
    cg::thread_block block = cg::this_thread_block();
    EXPECT(block.size() == 80 && block.thread_rank() == thread);
    auto tile = cg::tiled_partition<8>(block);
    EXPECT(tile.size() == 8 && tile.thread_rank() == thread % 8 && tile.meta_group_rank() == thread / 8);
    EXPECT(tile.shfl(thread, 2) == thread / 8 * 8 + 2);
    EXPECT(tile.shfl_down(thread, 1) == (thread % 8 < 7 ? thread + 1 : thread));
    EXPECT(tile.shfl_xor(thread, 1) == (thread ^ 1));
    EXPECT(tile.ballot(tile.thread_rank() == 3) == 8 && tile.any(tile.thread_rank() == 3) && !tile.all(0));
    EXPECT(cg::reduce(tile, thread % 8, cg::plus<int>()) == 28);
    EXPECT(cg::reduce(tile, thread % 8, cg::greater<int>()) == 7);
    tile.sync();
    if (lane < 5) EXPECT(cg::coalesced_threads().size() == 5);
    block.sync();
}

__device__ void check_block(int thread) {
    __shared__ int box[80];
    __shared__ alignas(16) float4 wide[2];
    extern __shared__ __align__(16) unsigned char unused[];
    box[thread] = thread * thread;
    __syncthreads();
    EXPECT(box[79 - thread] == (79 - thread) * (79 - thread));
    EXPECT(__syncthreads_count(thread % 5 == 0) == 16);
    EXPECT(__syncthreads_or(thread == 79) && !__syncthreads_or(thread == 80));
    EXPECT(__syncthreads_and(thread < 80) && !__syncthreads_and(thread));
    if (thread < 2) wide[thread] = make_float4(thread, 1, 2, 3);
    __syncthreads();
    EXPECT(wide[1].x == 1 && wide[0].w == 3 && sizeof(float3) == 12 && alignof(float4) == 16 && alignof(double2) == 16);
}

__device__ void check_atomics(int* scratch, int thread) {
    __shared__ int count;
    __shared__ float sum;
    __shared__ unsigned turns, most;
    if (thread == 0) count = 0, sum = 0, turns = 3, most = 0;
    __syncthreads();
    const int before = atomicAdd(&count, 2);
    EXPECT(before % 2 == 0 && before < 160);
    atomicAdd(&sum, 0.5f);
    atomicMax(&most, (unsigned)thread);
    atomicInc(&turns, 4);
    __syncthreads();
    EXPECT(count == 160 && sum == 40 && most == 79 && turns == (3 + 80) % 5);
    __syncthreads();
    if (thread == 0) {
        EXPECT(atomicCAS(&count, 160, 7) == 160 && count == 7 && atomicCAS(&count, 160, 8) == 7 && count == 7);
        EXPECT(atomicExch(&count, 9) == 7 && atomicSub(&count, 4) == 9 && atomicMin(&count, 3) == 5 && count == 3);
        EXPECT(atomicOr(&count, 4) == 3 && atomicAnd(&count, 6) == 7 && atomicXor(&count, 1) == 6 && count == 7);
        EXPECT(atomicDec(&turns, 9) == 3 && turns == 2);
        atomicAdd(scratch, 1);
        __threadfence();
    }
}

__device__ void check_numbers() {
    EXPECT(__popc(0xf0f0u) == 8 && __popcll(~0ull) == 64 && __clz(1) == 31 && __clz(0) == 32 && __clzll(1) == 63);
    EXPECT(__ffs(8) == 4 && __ffs(0) == 0 && __ffsll(1ll << 40) == 41 && __brev(1) == 0x80000000u);
    EXPECT(__byte_perm(0x33221100, 0x77665544, 0x7520) == 0x77552200 && __byte_perm(0x80, 0, 0x8888) == 0xffffffff);
    EXPECT(__mulhi(1 << 30, 8) == 2 && __umulhi(1u << 31, 4) == 2 && __umul64hi(1ull << 63, 6) == 3);
    EXPECT(__funnelshift_l(0x80000000u, 1, 1) == 3 && __funnelshift_r(2, 1, 1) == 0x80000001u);
    EXPECT(__dp4a(0x01020304, 0x01010101, 5) == 15 && __sad(3, -4, 1) == 8);
    EXPECT(__float_as_int(1.0f) == 0x3f800000 && __int_as_float(0x40000000) == 2 && __uint_as_float(0) == 0);
    EXPECT(__double2hiint(1.0) == 0x3ff00000 && __hiloint2double(0x3ff00000, 0) == 1);
    EXPECT(__float2int_rn(2.5f) == 2 && __float2int_rz(-2.7f) == -2 && __float2int_ru(2.1f) == 3 && __float2int_rd(-2.1f) == -3);
    EXPECT(__float2int_rz(1e20f) == 0x7fffffff && __float2uint_rn(-3.0f) == 0);
    EXPECT(rsqrtf(4) == 0.5f && fmaf(2, 3, 4) == 10 && __fdividef(6, 3) == 2 && __fmul_rn(3, 4) == 12 && __frcp_rn(4) == 0.25f);
    EXPECT(fabsf(__expf(1) - 2.7182818f) < 1e-5f && fabsf(exp2f(3) - 8) < 1e-5f && fabsf(erff(10) - 1) < 1e-6f);
    EXPECT(__saturatef(2) == 1 && __saturatef(-1) == 0 && fmaxf(__int_as_float(0x7fffffff), 1) == 1);
    EXPECT(max(3, 4) == 4 && min(3.0f, 4.0f) == 3 && max(2u, 3u) == 3 && isnan(__int_as_float(0x7fffffff)));
    const float near = fabsf(sinpif(0.5f) - 1) + fabsf(normcdff(0) - 0.5f) + fabsf(rcbrtf(8) - 0.5f);
    EXPECT(near < 1e-5f && fabsf(norm3df(2, 3, 6) - 7) < 1e-5f);
    float sine, cosine;
    sincospif(1.25f, &sine, &cosine);
    EXPECT(fabsf(sine + 0.70710678f) < 1e-6f && fabsf(cosine + 0.70710678f) < 1e-6f);
    double turn, half;
    sincospi(-0.5, &turn, &half);
    EXPECT(fabs(turn + 1) < 1e-12 && fabs(half) < 1e-12);
}

__device__ void check_halves() {
    // Halfway cases go to even.
    EXPECT(__bfloat162float(__float2bfloat16_rn(1.00390625f)) == 1 && __bfloat162float(__float2bfloat16(1.01171875f)) == 1.015625f);
    EXPECT(__half2float(__float2half_rn(1.00048828125f)) == 1 && __half2float(__float2half(65520.0f)) > 1e30f);
    EXPECT(__bfloat16_as_ushort(__float2bfloat16(-2)) == 0xc000 && __half_as_ushort(__float2half(-2)) == 0xc000);
    const __half h = __float2half(1.5f), g = __float2half(2);
    const __nv_bfloat16 e = __float2bfloat16(1.5f), d = __float2bfloat16(2);
    EXPECT(__half2float(__hmul(h, g)) == 3 && __half2float(__hfma(h, g, h)) == 4.5f && __hlt(h, g) && __half2float(h + g) == 3.5f);
    EXPECT(__bfloat162float(__hsub(e, d)) == -0.5f && __bfloat162float(__hmax(e, d)) == 2 && __bfloat162float(e / d) == 0.75f);
    const __half2 two = __floats2half2_rn(1, 2), sum = __hadd2(two, __half2half2(g));
    EXPECT(__low2float(sum) == 3 && __high2float(sum) == 4 && __half22float2(sum).y == 4 && sizeof(__half2) == 4);
    const __nv_bfloat162 pair = __hmul2(__floats2bfloat162_rn(3, 4), __float2bfloat162_rn(0.5f));
    EXPECT(__low2float(pair) == 1.5f && __bfloat1622float2(pair).y == 2 && __bfloat162float(__high2bfloat16(pair)) == 2);
}

__device__ void check_copies(const T* x, int thread, int n) {
    __shared__ alignas(16) T tile[80];
    const int i = blockIdx.x * 80 + thread;
    if (i < n) __pipeline_memcpy_async(&tile[thread], &x[i], sizeof(T));
    __pipeline_commit();
    __pipeline_wait_prior(0);
    __syncthreads();
    const int other = 79 - thread;
    if (blockIdx.x * 80 + other < n) EXPECT(tile[other] == x[blockIdx.x * 80 + other]);
    __syncthreads();
}

extern "C" __global__ void clear(int* scratch) { scratch[threadIdx.x] = 0; }

extern "C" __global__ void check(const T* x, const T* b, T* y, T alpha, int* scratch, int n) {
    const int thread = threadIdx.x + blockDim.x * threadIdx.y, lane = thread % 32, warp = thread / 32;
    EXPECT(blockDim.x == 16 && blockDim.y == 5 && blockDim.z == 1 && gridDim.x == (n + 79) / 80 && warpSize == 32);
    EXPECT(threadIdx.x - 16 > 0 && clock64() <= clock64());
    const unsigned all = warp == 2 ? 0xffffu : ~0u;
    check_warp(lane, all);
    check_groups(thread, lane, 3);
    check_block(thread);
    check_atomics(scratch, thread);
    check_numbers();
    check_halves();
    check_copies(x, thread, n);
    const int i = blockIdx.x * 80 + thread;
    if (i < n) y[i] = store(load(alpha) * load(__ldg(x + i)) + load(b[i]));
    if (thread >= 40) return;
    // Lanes that have ended are not waited for.
    if (warp == 1) EXPECT(__popc(__activemask()) == 8 && __reduce_add_sync(0xffu, 1u) == 8);
}
