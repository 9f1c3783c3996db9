/*! evo
[[launch]]
kernel = "instructions"
grid = [1]
block = [32]
args = ["x", "y"]
*/
// One warp does what number x[0] says: lane l's words are x[32 + 32 i + l], its results y[32 i + l].
using u32 = unsigned;
using u64 = unsigned long long;

__device__ u32 in(const u32* x, int i) { return x[32 + 32 * i + threadIdx.x]; }
__device__ u64 in2(const u32* x, int i) { return in(x, i) | (u64)in(x, i + 1) << 32; }
__device__ void out(u32* y, int i, u32 value) { y[32 * i + threadIdx.x] = value; }
__device__ u32 shared_address(const void* at) { return (u32)__cvta_generic_to_shared(at); }

#define TEXT(...) #__VA_ARGS__
// d of fp32 or s32, four words of it
#define MMA4(SHAPE, D, A)                                                                                     \
    {                                                                                                         \
        u32 d[4];                                                                                             \
        asm volatile("mma.sync.aligned." SHAPE ".row.col." D "." A "." D " {%0, %1, %2, %3}, {%4,%5,%6,%7}, " \
                     "{%8, %9}, {%10, %11, %12, %13};\n"                                                      \
                     : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])                                         \
                     : "r"(in(x, 0)), "r"(in(x, 1)), "r"(in(x, 2)), "r"(in(x, 3)), "r"(in(x, 4)), "r"(in(x, 5)), \
                       "r"(in(x, 6)), "r"(in(x, 7)), "r"(in(x, 8)), "r"(in(x, 9)));                           \
        for (int i = 0; i < 4; i++) out(y, i, d[i]);                                                          \
    }                                                                                                         \
    break
#define MMA4_SMALL(SHAPE, D, A)                                                                               \
    {                                                                                                         \
        float d[4];                                                                                           \
        for (int i = 0; i < 4; i++) d[i] = __uint_as_float(in(x, 6 + i));                                     \
        asm("mma.sync.aligned." SHAPE ".row.col." D "." A "." D " {%0, %1, %2, %3}, {%4, %5}, {%6}, "         \
            "{%0, %1, %2, %3};"                                                                               \
            : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])                                                  \
            : "r"(in(x, 0)), "r"(in(x, 1)), "r"(in(x, 4)));                                                   \
        for (int i = 0; i < 4; i++) out(y, i, __float_as_uint(d[i]));                                         \
    }                                                                                                         \
    break

__device__ void multiply(const u32* x, u32* y) {
    switch (x[1]) {
        case 0: MMA4("m16n8k16", "f32", "bf16.bf16");
        case 1: MMA4("m16n8k16", "f32", "f16.f16");
        case 2: MMA4_SMALL("m16n8k8", "f32", "bf16.bf16");
        case 3: MMA4_SMALL("m16n8k8", "f32", "f16.f16");
        case 4: MMA4("m16n8k8", "f32", "tf32.tf32");
        case 5: MMA4_SMALL("m16n8k4", "f32", "tf32.tf32");
        case 6: MMA4("m16n8k32", "s32", "s8.s8");
        case 7: MMA4("m16n8k32", "s32", "u8.s8");
        case 8: MMA4("m16n8k32", "f32", "e4m3.e5m2");
        case 9: {
            u32 d[2];
            asm("mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16 {%0, %1}, {%2, %3, %4, %5}, {%6, %7}, {%8, %9};"
                : "=r"(d[0]), "=r"(d[1])
                : "r"(in(x, 0)), "r"(in(x, 1)), "r"(in(x, 2)), "r"(in(x, 3)), "r"(in(x, 4)), "r"(in(x, 5)),
                  "r"(in(x, 6)), "r"(in(x, 7)));
            out(y, 0, d[0]), out(y, 1, d[1]);
            break;
        }
        case 10: {
            double d[2] = {__longlong_as_double(in2(x, 4)), __longlong_as_double(in2(x, 6))};
            asm("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0, %1}, {%2}, {%3}, {%0, %1};"
                : "+d"(d[0]), "+d"(d[1])
                : "d"(__longlong_as_double(in2(x, 0))), "d"(__longlong_as_double(in2(x, 2))));
            for (int i = 0; i < 2; i++) {
                out(y, 2 * i, (u32)__double_as_longlong(d[i]));
                out(y, 2 * i + 1, (u32)((u64)__double_as_longlong(d[i]) >> 32));
            }
        }
    }
}

// A word of every lane says where its row begins; the memory is x[64 ... 191], four matrices.
__device__ void matrices(const u32* x, u32* y) {
    __shared__ alignas(16) u32 tile[128], back[128];
    for (int i = 0; i < 4; i++) tile[32 * i + threadIdx.x] = in(x, 1 + i), back[32 * i + threadIdx.x] = 0xabababab;
    __syncwarp();
    const u32 at = shared_address(tile) + 16 * in(x, 0), to = shared_address(back) + 16 * in(x, 0);
    u32 d[4] = {};
    switch (x[1]) {
        case 0: asm volatile("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%0}, [%1];" : "=r"(d[0]) : "r"(at)); break;
        case 1: asm volatile("ldmatrix.sync.aligned.m8n8.x1.trans.shared.b16 {%0}, [%1];" : "=r"(d[0]) : "r"(at)); break;
        case 2: asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared::cta.b16 {%0, %1}, [%2];" : "=r"(d[0]), "=r"(d[1]) : "r"(at)); break;
        case 3: asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];" : "=r"(d[0]), "=r"(d[1]) : "r"(at)); break;
        case 4: asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];" : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3]) : "r"(at)); break;
        case 5: asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4 + 0];" : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3]) : "r"(at)); break;
        case 6: asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(in(x, 1)), "r"(in(x, 2)), "r"(in(x, 3)), "r"(in(x, 4)) : "memory"); break;
        case 7: asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(in(x, 1)), "r"(in(x, 2)), "r"(in(x, 3)), "r"(in(x, 4)) : "memory"); break;
        case 8: asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(d[0]) : "r"(in(x, 1)));
    }
    __syncwarp();
    for (int i = 0; i < 4; i++) out(y, i, d[i]), out(y, 4 + i, back[32 * i + threadIdx.x]);
}

// What a place holds before the wait, after it, and after that of the second group.
__device__ void copies(const u32* x, u32* y) {
    __shared__ alignas(16) u32 there[256];
    for (int i = 0; i < 8; i++) there[32 * i + threadIdx.x] = 0x11111111;
    __syncwarp();
    const u32 first = shared_address(there) + 16 * threadIdx.x, second = first + 512, bytes = in(x, 0) % 17;
    const u32 *from = x + 64 + 4 * threadIdx.x, *more = from + 128;
    switch (x[1]) {
        case 4: asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(first), "l"(from), "r"(bytes % 5) : "memory"); break;
        case 8: asm volatile("cp.async.ca.shared.global [%0], [%1], 8, %2;" ::"r"(first), "l"(from), "r"(bytes % 9) : "memory"); break;
        case 16: asm volatile("cp.async.cg.shared::cta.global.L2::128B [%0], [%1], 16, %2;" ::"r"(first), "l"(from), "r"(bytes) : "memory"); break;
        case 1: asm volatile("{ .reg .pred p; setp.ne.b32 p, %2, 0; @p cp.async.cg.shared.global [%0], [%1], 16; }" ::"r"(first), "l"(from), "r"(bytes & 1) : "memory"); break;
        case 2: asm volatile("{ .reg .pred none; setp.ne.b32 none, %2, 0; cp.async.cg.shared.global [%0], [%1], 16, none; }" ::"r"(first), "l"(from), "r"(bytes & 1) : "memory");
    }
    asm volatile("cp.async.commit_group;" ::: "memory");
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;\n\tcp.async.commit_group;" ::"r"(second), "l"(more) : "memory");
    for (int i = 0; i < 4; i++) out(y, i, there[4 * threadIdx.x + i]);
    asm volatile("cp.async.wait_group %0;" ::"n"(1) : "memory");
    for (int i = 0; i < 4; i++) out(y, 4 + i, there[4 * threadIdx.x + i]), out(y, 8 + i, there[128 + 4 * threadIdx.x + i]);
    asm volatile("cp.async.wait_all;" ::: "memory");
    for (int i = 0; i < 4; i++) out(y, 12 + i, there[128 + 4 * threadIdx.x + i]);
}

#define CALCULATE(NUMBER, ...) \
    case NUMBER: asm volatile(TEXT(__VA_ARGS__) : "=r"(d) : "r"(a), "r"(b), "r"(c)); break
#define CALCULATE_LONG(NUMBER, ...) \
    case NUMBER: asm volatile(TEXT(__VA_ARGS__) : "=l"(e) : "r"(a), "r"(b), "l"(f)); break

__device__ void calculate(const u32* x, u32* y) {
    const u32 a = in(x, 0), b = in(x, 1), c = in(x, 2);
    const u64 f = in2(x, 3);
    u32 d = 0;
    u64 e = 0;
    switch (x[1]) {
        CALCULATE(0, add.s32 %0, %1, %2;);
        CALCULATE(1, mad.lo.u32 %0, %1, %2, %3;);
        CALCULATE(2, mul.hi.s32 %0, %1, %2;);
        CALCULATE(3, mul.hi.u32 %0, %1, %2;);
        CALCULATE(4, lop3.b32 %0, %1, %2, %3, 0x6a;);
        CALCULATE(5, prmt.b32 %0, %1, %2, 0x5410;);
        CALCULATE(6, shf.l.wrap.b32 %0, %1, %2, %3;);
        CALCULATE(7, shf.r.clamp.b32 %0, %1, %2, %3;);
        CALCULATE(8, shl.b32 %0, %1, %2;);
        CALCULATE(9, shr.s32 %0, %1, %2;);
        CALCULATE(10, bfe.u32 %0, %1, %2, %3;);
        CALCULATE(11, bfe.s32 %0, %1, %2, %3;);
        CALCULATE(12, bfi.b32 %0, %1, %2, %3, 7;);
        CALCULATE(13, {.reg .pred p; .reg .pred q; setp.lt.s32 p, %1, %2; setp.gt.and.u32 q, %1, %3, p; selp.b32 %0, %1, %2, q;});
        CALCULATE(14, {.reg .b16 low, high; mov.b32 {low, high}, %1; mov.b32 %0, {high, low};});
        CALCULATE(15, add.f32 %0, %1, %2;);
        CALCULATE(16, fma.rn.f32 %0, %1, %2, %3;);
        CALCULATE(17, mul.ftz.f32 %0, %1, %2;);
        CALCULATE(18, min.f32 %0, %1, %2;);
        CALCULATE(19, max.NaN.f32 %0, %1, %2;);
        CALCULATE(20, cvt.rn.bf16x2.f32 %0, %1, %2;);
        CALCULATE(21, cvt.rn.f16x2.f32 %0, %1, %2;);
        CALCULATE(22, cvt.rna.tf32.f32 %0, %1;);
        CALCULATE(23, cvt.rzi.s32.f32 %0, %1;);
        CALCULATE(24, cvt.rn.f32.s32 %0, %1;);
        CALCULATE(25, fma.rn.bf16x2 %0, %1, %2, %3;);
        CALCULATE(26, {.reg .b16 low, high; .reg .f32 wide; mov.b32 {low, high}, %1; cvt.f32.f16 wide, high; mov.b32 %0, wide;});
        CALCULATE(27, {.reg .u32 left; .reg .pred none; and.b32 left, %2, 31; mov.u32 %0, 1; again: setp.eq.u32 none, left, 0;
                       @none bra done; add.u32 %0, %0, %0; sub.u32 left, left, 1; bra again; done: add.u32 %0, %0, %1;});
        CALCULATE(28, shfl.sync.down.b32 %0, %1, 3, 0x181f, 0xffffffff;);
        CALCULATE(29, {.reg .pred p; shfl.sync.up.b32 %0|p, %1, 5, 0, 0xffffffff; @!p mov.u32 %0, 7;});
        CALCULATE(30, redux.sync.min.s32 %0, %1, 0xffffffff;);
        CALCULATE(31, {.reg .pred p; setp.lt.s32 p, %1, 0; vote.sync.ballot.b32 %0, p, 0xffffffff;});
        CALCULATE(32, mov.u32 %0, %%laneid;);
        CALCULATE(33, {.reg .pred p; setp.ltu.f32 p, %1, %2; selp.u32 %0, 1, 0, p;});
        CALCULATE(34, mul.f32 %0, %1, 0f3F000000;);
        CALCULATE(35, mul.f32 %0, %1, 1.5;);
        CALCULATE_LONG(40, mul.wide.s32 %0, %1, %2;);
        CALCULATE_LONG(41, mad.wide.u32 %0, %1, %2, %3;);
        CALCULATE_LONG(42, cvt.s64.s32 %0, %1;);
        CALCULATE_LONG(43, mov.b64 %0, {%2, %1};);
        CALCULATE_LONG(44, sub.s64 %0, %3, -5;);
    }
    out(y, 0, d), out(y, 1, (u32)e), out(y, 2, (u32)(e >> 32));
}

extern "C" __global__ void instructions(const T* words, T* results) {
    const u32* x = reinterpret_cast<const u32*>(words);
    u32* y = reinterpret_cast<u32*>(results);
    switch (x[0]) {
        case 0: multiply(x, y); break;
        case 1: matrices(x, y); break;
        case 2: copies(x, y); break;
        case 3: calculate(x, y); break;
    }
}
