// What CUDA C++ declares by itself: intrinsics, atomics, mathematics, and last of all its own words.

#define EVO_LINE int line = __builtin_LINE()

// --- launches that overlap --------------------------------------------------------------------------------------------

// One launch follows the other here.
inline void cudaGridDependencySynchronize() {}
inline void cudaTriggerProgrammaticLaunchCompletion() {}

// --- barriers, warps --------------------------------------------------------------------------------------------------

inline void __syncthreads(EVO_LINE) { evo::barrier(evo::Kind::SYNC, 0, line); }
inline int __syncthreads_and(int predicate, EVO_LINE) { return static_cast<int>(evo::barrier(evo::Kind::SYNC_AND, predicate, line)); }
inline int __syncthreads_or(int predicate, EVO_LINE) { return static_cast<int>(evo::barrier(evo::Kind::SYNC_OR, predicate, line)); }
inline int __syncthreads_count(int predicate, EVO_LINE) { return static_cast<int>(evo::barrier(evo::Kind::SYNC_COUNT, predicate, line)); }
inline void __syncwarp(unsigned mask = ~0u, EVO_LINE) { evo::collective(evo::Kind::SYNC_WARP, mask, 0, line); }
inline unsigned __activemask(EVO_LINE) { return static_cast<unsigned>(evo::collective(evo::Kind::ACTIVE, ~0u, 0, line)); }
inline int __all_sync(unsigned mask, int predicate, EVO_LINE) {
    return static_cast<int>(evo::collective(evo::Kind::ALL, mask, predicate != 0, line));
}
inline int __any_sync(unsigned mask, int predicate, EVO_LINE) {
    return static_cast<int>(evo::collective(evo::Kind::ANY, mask, predicate != 0, line));
}
inline unsigned __ballot_sync(unsigned mask, int predicate, EVO_LINE) {
    return static_cast<unsigned>(evo::collective(evo::Kind::BALLOT, mask, predicate != 0, line));
}

namespace evo {
template <class X> std::uint64_t bits_of(X value) {
    static_assert(sizeof(X) <= 8 && std::is_trivially_copyable_v<X>, "a value of at most 8 bytes");
    std::uint64_t bits = 0;
    std::memcpy(&bits, &value, sizeof value);
    return bits;
}
template <class X> X from_bits(std::uint64_t bits) {
    X value;
    std::memcpy(static_cast<void*>(&value), &bits, sizeof value);
    return value;
}
template <class X> X shuffled(Kind kind, unsigned mask, X value, int source, int width, int line) {
    return from_bits<X>(shuffle(kind, mask, bits_of(value), source, width, line));
}
}  // namespace evo

template <class X> X __shfl_sync(unsigned mask, X value, int source, int width = 32, EVO_LINE) {
    return evo::shuffled(evo::Kind::SHUFFLE, mask, value, source, width, line);
}
template <class X> X __shfl_up_sync(unsigned mask, X value, unsigned delta, int width = 32, EVO_LINE) {
    return evo::shuffled(evo::Kind::UP, mask, value, static_cast<int>(delta), width, line);
}
template <class X> X __shfl_down_sync(unsigned mask, X value, unsigned delta, int width = 32, EVO_LINE) {
    return evo::shuffled(evo::Kind::DOWN, mask, value, static_cast<int>(delta), width, line);
}
template <class X> X __shfl_xor_sync(unsigned mask, X value, int lanes, int width = 32, EVO_LINE) {
    return evo::shuffled(evo::Kind::XOR, mask, value, lanes, width, line);
}
template <class X> unsigned __match_any_sync(unsigned mask, X value, EVO_LINE) {
    return static_cast<unsigned>(evo::collective(evo::Kind::MATCH_ANY, mask, evo::bits_of(value), line));
}
template <class X> unsigned __match_all_sync(unsigned mask, X value, int* matched, EVO_LINE) {
    const std::uint64_t found = evo::collective(evo::Kind::MATCH_ALL, mask, evo::bits_of(value), line);
    *matched = evo::matched();
    return static_cast<unsigned>(found);
}
#define EVO_REDUCE(NAME, UNSIGNED, SIGNED)                                                                    \
    inline unsigned __reduce_##NAME##_sync(unsigned mask, unsigned value, EVO_LINE) {                         \
        return static_cast<unsigned>(evo::collective(evo::Kind::UNSIGNED, mask, value, line));                \
    }                                                                                                         \
    inline int __reduce_##NAME##_sync(unsigned mask, int value, EVO_LINE) {                                   \
        return static_cast<int>(evo::collective(evo::Kind::SIGNED, mask, static_cast<unsigned>(value), line)); \
    }
EVO_REDUCE(add, ADD, ADD)
EVO_REDUCE(min, MIN, SIGNED_MIN)
EVO_REDUCE(max, MAX, SIGNED_MAX)
EVO_REDUCE(and, BIT_AND, BIT_AND)
EVO_REDUCE(or, BIT_OR, BIT_OR)
EVO_REDUCE(xor, BIT_XOR, BIT_XOR)

inline void __threadfence() { evo::tick(); }
inline void __threadfence_block() { evo::tick(); }
inline void __threadfence_system() { evo::tick(); }
inline void __nanosleep(unsigned) { evo::tick(evo::SPINS); }
[[noreturn]] inline void __trap(EVO_LINE) { evo::fail("line %d: __trap()", line); }
inline long long clock64() { static long long cycles; return cycles += 100; }  // time passes when it is looked at
inline long clock() { return static_cast<long>(clock64()); }

// --- memory -----------------------------------------------------------------------------------------------------------

template <class X> X __ldg(const X* at) { return *at; }
template <class X> X __ldca(const X* at) { return *at; }
template <class X> X __ldcg(const X* at) { return *at; }
template <class X> X __ldcs(const X* at) { return *at; }
template <class X> X __ldlu(const X* at) { return *at; }
template <class X> X __ldcv(const X* at) { evo::tick(); return *static_cast<const volatile X*>(at); }
template <class X> void __stwb(X* at, std::common_type_t<X> value) { *at = value; }
template <class X> void __stcg(X* at, std::common_type_t<X> value) { *at = value; }
template <class X> void __stcs(X* at, std::common_type_t<X> value) { *at = value; }
template <class X> void __stwt(X* at, std::common_type_t<X> value) { *at = value; }
inline std::size_t __cvta_generic_to_shared(const void* at) { return evo::shared_address(at); }
inline void* __cvta_shared_to_generic(std::size_t at) { return evo::shared_pointer(at); }
inline std::size_t __cvta_generic_to_global(const void* at) { return reinterpret_cast<std::size_t>(at); }

namespace evo {
template <class X, class Change> X changed(X* at, Change change) {
    tick();
    const X before = *at;
    *at = change(before);
    return before;
}
}  // namespace evo
#define EVO_ATOMIC(NAME, VALUE)                                                                       \
    template <class X> X atomic##NAME(X* at, std::common_type_t<X> v) {                               \
        return evo::changed(at, [v](X old) -> X { return static_cast<X>(VALUE); });                   \
    }                                                                                                 \
    template <class X> X atomic##NAME##_block(X* at, std::common_type_t<X> v) { return atomic##NAME(at, v); } \
    template <class X> X atomic##NAME##_system(X* at, std::common_type_t<X> v) { return atomic##NAME(at, v); }
EVO_ATOMIC(Add, old + v)
EVO_ATOMIC(Sub, old - v)
EVO_ATOMIC(Exch, v)
EVO_ATOMIC(Min, v < old ? v : old)
EVO_ATOMIC(Max, v > old ? v : old)
EVO_ATOMIC(And, old& v)
EVO_ATOMIC(Or, old | v)
EVO_ATOMIC(Xor, old ^ v)
EVO_ATOMIC(Inc, old >= v ? 0 : old + 1)
EVO_ATOMIC(Dec, old == 0 || old > v ? v : old - 1)
#undef EVO_ATOMIC
inline float2 atomicAdd(float2* at, float2 v) {
    return {atomicAdd(&at->x, v.x), atomicAdd(&at->y, v.y)};
}
inline float4 atomicAdd(float4* at, float4 v) {
    return {atomicAdd(&at->x, v.x), atomicAdd(&at->y, v.y), atomicAdd(&at->z, v.z), atomicAdd(&at->w, v.w)};
}
template <class X> X atomicCAS(X* at, std::common_type_t<X> compare, std::common_type_t<X> v) {
    return evo::changed(at, [=](X old) -> X { return old == compare ? v : old; });
}
template <class X> X atomicCAS_block(X* at, std::common_type_t<X> compare, std::common_type_t<X> v) { return atomicCAS(at, compare, v); }
template <class X> X atomicCAS_system(X* at, std::common_type_t<X> compare, std::common_type_t<X> v) { return atomicCAS(at, compare, v); }

// --- bits and conversions ---------------------------------------------------------------------------------------------

#define EVO_SAME_BITS(NAME, FROM, TO) \
    inline TO NAME(FROM value) { return evo::from_bits<TO>(evo::bits_of(value)); }
EVO_SAME_BITS(__float_as_int, float, int)
EVO_SAME_BITS(__float_as_uint, float, unsigned)
EVO_SAME_BITS(__int_as_float, int, float)
EVO_SAME_BITS(__uint_as_float, unsigned, float)
EVO_SAME_BITS(__double_as_longlong, double, long long)
EVO_SAME_BITS(__longlong_as_double, long long, double)
inline int __double2hiint(double x) { return static_cast<int>(__double_as_longlong(x) >> 32); }
inline int __double2loint(double x) { return static_cast<int>(__double_as_longlong(x)); }
inline double __hiloint2double(int high, int low) {
    return __longlong_as_double(static_cast<long long>(static_cast<unsigned long long>(static_cast<unsigned>(high)) << 32 | static_cast<unsigned>(low)));
}

namespace evo {
// Numbers out of range become the nearest there is, NaN becomes 0.
template <class To> To saturated(double x) {
    using Limits = std::numeric_limits<To>;
    if (!(x == x)) return 0;
    if (x <= static_cast<double>(Limits::min())) return Limits::min();
    if (x >= static_cast<double>(Limits::max())) return Limits::max();
    return static_cast<To>(x);
}
}  // namespace evo
#define EVO_TO_INTEGER(FROM, NAME, TO)                                                     \
    inline TO __##FROM##2##NAME##_rn(FROM x) { return evo::saturated<TO>(::rint(static_cast<double>(x))); } \
    inline TO __##FROM##2##NAME##_rz(FROM x) { return evo::saturated<TO>(::trunc(static_cast<double>(x))); } \
    inline TO __##FROM##2##NAME##_rd(FROM x) { return evo::saturated<TO>(::floor(static_cast<double>(x))); } \
    inline TO __##FROM##2##NAME##_ru(FROM x) { return evo::saturated<TO>(::ceil(static_cast<double>(x))); }
EVO_TO_INTEGER(float, int, int)
EVO_TO_INTEGER(float, uint, unsigned)
EVO_TO_INTEGER(float, ll, long long)
EVO_TO_INTEGER(float, ull, unsigned long long)
EVO_TO_INTEGER(double, int, int)
EVO_TO_INTEGER(double, uint, unsigned)
EVO_TO_INTEGER(double, ll, long long)
EVO_TO_INTEGER(double, ull, unsigned long long)
inline float __int2float_rn(int x) { return static_cast<float>(x); }
inline float __uint2float_rn(unsigned x) { return static_cast<float>(x); }
inline float __ll2float_rn(long long x) { return static_cast<float>(x); }
inline float __ull2float_rn(unsigned long long x) { return static_cast<float>(x); }
inline double __int2double_rn(int x) { return x; }
inline double __uint2double_rn(unsigned x) { return x; }
inline double __ll2double_rn(long long x) { return static_cast<double>(x); }
inline float __double2float_rn(double x) { return static_cast<float>(x); }

inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
inline int __clz(int x) { return x ? __builtin_clz(static_cast<unsigned>(x)) : 32; }
inline int __clzll(long long x) { return x ? __builtin_clzll(static_cast<unsigned long long>(x)) : 64; }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __ffsll(long long x) { return __builtin_ffsll(x); }
inline unsigned long long __brevll(unsigned long long x) {
    unsigned long long result = 0;
    for (int i = 0; i < 64; ++i) result |= (x >> i & 1) << (63 - i);
    return result;
}
inline unsigned __brev(unsigned x) { return static_cast<unsigned>(__brevll(x) >> 32); }
inline unsigned __byte_perm(unsigned x, unsigned y, unsigned selector) {
    const std::uint64_t bytes = static_cast<std::uint64_t>(y) << 32 | x;
    unsigned result = 0;
    for (int i = 0; i < 4; ++i) {
        const unsigned nibble = selector >> (4 * i) & 15, byte = bytes >> (8 * (nibble & 7)) & 255;
        result |= (nibble & 8 ? (byte & 128 ? 255u : 0u) : byte) << (8 * i);
    }
    return result;
}
inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned by) {
    return static_cast<unsigned>((static_cast<std::uint64_t>(high) << 32 | low) << (by & 31) >> 32);
}
inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned by) {
    return static_cast<unsigned>((static_cast<std::uint64_t>(high) << 32 | low) >> (by & 31));
}
inline int __mulhi(int a, int b) { return static_cast<int>(static_cast<long long>(a) * b >> 32); }
inline unsigned __umulhi(unsigned a, unsigned b) { return static_cast<unsigned>(static_cast<unsigned long long>(a) * b >> 32); }
inline long long __mul64hi(long long a, long long b) { return static_cast<long long>(static_cast<__int128>(a) * b >> 64); }
inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
    return static_cast<unsigned long long>(static_cast<unsigned __int128>(a) * b >> 64);
}
inline int __mul24(int a, int b) { return (a << 8 >> 8) * (b << 8 >> 8); }
inline unsigned __umul24(unsigned a, unsigned b) { return (a & 0xffffff) * (b & 0xffffff); }
inline unsigned __sad(int a, int b, unsigned c) { return c + static_cast<unsigned>(a < b ? b - a : a - b); }
inline int __dp4a(int a, int b, int c) {
    for (int i = 0; i < 4; ++i) c += static_cast<signed char>(a >> (8 * i)) * static_cast<signed char>(b >> (8 * i));
    return c;
}
inline unsigned __dp4a(unsigned a, unsigned b, unsigned c) {
    for (int i = 0; i < 4; ++i) c += (a >> (8 * i) & 255) * (b >> (8 * i) & 255);
    return c;
}

// --- mathematics ------------------------------------------------------------------------------------------------------

template <class A, class B> constexpr std::common_type_t<A, B> max(A a, B b) {
    using X = std::common_type_t<A, B>;
    if constexpr (std::is_floating_point_v<X>) return a != a || static_cast<X>(a) < static_cast<X>(b) ? static_cast<X>(b) : static_cast<X>(a);
    else return static_cast<X>(a) < static_cast<X>(b) ? static_cast<X>(b) : static_cast<X>(a);
}
template <class A, class B> constexpr std::common_type_t<A, B> min(A a, B b) {
    using X = std::common_type_t<A, B>;
    if constexpr (std::is_floating_point_v<X>) return a != a || static_cast<X>(b) < static_cast<X>(a) ? static_cast<X>(b) : static_cast<X>(a);
    else return static_cast<X>(b) < static_cast<X>(a) ? static_cast<X>(b) : static_cast<X>(a);
}
inline unsigned umin(unsigned a, unsigned b) { return min(a, b); }
inline unsigned umax(unsigned a, unsigned b) { return max(a, b); }
inline long long llmin(long long a, long long b) { return min(a, b); }
inline long long llmax(long long a, long long b) { return max(a, b); }

#define EVO_FLOAT_AND_DOUBLE(NAME, BODY)                  \
    inline float NAME##f(float x) { using X = float; return static_cast<X>(BODY); } \
    inline double NAME(double x) { using X = double; return static_cast<X>(BODY); }
EVO_FLOAT_AND_DOUBLE(rsqrt, X(1) / ::sqrt(x))
EVO_FLOAT_AND_DOUBLE(rcbrt, X(1) / ::cbrt(x))
EVO_FLOAT_AND_DOUBLE(sinpi, ::sin(M_PI * ::fmod(static_cast<double>(x), 2.0)))
EVO_FLOAT_AND_DOUBLE(cospi, ::cos(M_PI * ::fmod(static_cast<double>(x), 2.0)))
inline void sincospif(float x, float* s, float* c) { *s = sinpif(x), *c = cospif(x); }
inline void sincospi(double x, double* s, double* c) { *s = sinpi(x), *c = cospi(x); }
EVO_FLOAT_AND_DOUBLE(normcdf, 0.5 * ::erfc(-static_cast<double>(x) * M_SQRT1_2))
EVO_FLOAT_AND_DOUBLE(erfcx, ::exp(static_cast<double>(x) * x) * ::erfc(static_cast<double>(x)))
inline float rhypotf(float x, float y) { return 1 / ::hypotf(x, y); }
inline float norm3df(float x, float y, float z) { return ::sqrtf(x * x + y * y + z * z); }
inline float norm4df(float x, float y, float z, float w) { return ::sqrtf(x * x + y * y + z * z + w * w); }
inline float fdividef(float x, float y) { return x / y; }
inline float __saturatef(float x) { return x > 0 ? (x < 1 ? x : 1.0f) : 0.0f; }
inline float __expf(float x) { return ::expf(x); }
inline float __exp10f(float x) { return ::exp10f(x); }
inline float __logf(float x) { return ::logf(x); }
inline float __log2f(float x) { return ::log2f(x); }
inline float __log10f(float x) { return ::log10f(x); }
inline float __sinf(float x) { return ::sinf(x); }
inline float __cosf(float x) { return ::cosf(x); }
inline float __tanf(float x) { return ::tanf(x); }
inline float __tanhf(float x) { return ::tanhf(x); }
inline float __powf(float x, float y) { return ::powf(x, y); }
inline void __sincosf(float x, float* s, float* c) { *s = ::sinf(x), *c = ::cosf(x); }
inline float __fdividef(float x, float y) { return x / y; }
inline float __frsqrt_rn(float x) { return rsqrtf(x); }
// Only rounding to nearest is emulated: where another mode matters, results differ in their last bit.
#define EVO_ARITHMETIC(MODE)                                                          \
    inline float __fadd_##MODE(float x, float y) { volatile float sum = x + y; return sum; } \
    inline float __fsub_##MODE(float x, float y) { volatile float sum = x - y; return sum; } \
    inline float __fmul_##MODE(float x, float y) { volatile float product = x * y; return product; } \
    inline float __fmaf_##MODE(float x, float y, float z) { return ::fmaf(x, y, z); } \
    inline float __fdiv_##MODE(float x, float y) { return x / y; }                    \
    inline float __frcp_##MODE(float x) { return 1 / x; }                             \
    inline float __fsqrt_##MODE(float x) { return ::sqrtf(x); }                       \
    inline double __dadd_##MODE(double x, double y) { volatile double sum = x + y; return sum; } \
    inline double __dsub_##MODE(double x, double y) { volatile double sum = x - y; return sum; } \
    inline double __dmul_##MODE(double x, double y) { volatile double product = x * y; return product; } \
    inline double __fma_##MODE(double x, double y, double z) { return ::fma(x, y, z); } \
    inline double __ddiv_##MODE(double x, double y) { return x / y; }                 \
    inline double __drcp_##MODE(double x) { return 1 / x; }                           \
    inline double __dsqrt_##MODE(double x) { return ::sqrt(x); }
EVO_ARITHMETIC(rn)
EVO_ARITHMETIC(rz)
EVO_ARITHMETIC(ru)
EVO_ARITHMETIC(rd)

// --- words ------------------------------------------------------------------------------------------------------------

// A block's shared memory is the thread-local memory of the one thread that runs them all: static within functions
// and templates, `extern` without a size, and all of it in one piece that can be poisoned and copied.
#define __shared__ thread_local
#define __global__
#define __device__
#define __host__
#define __constant__
#define __managed__
#define __grid_constant__
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __align__(...) __attribute__((aligned(__VA_ARGS__)))
// g++ would not have it where nvcc does, behind __shared__.
#define alignas(...) __attribute__((aligned(__VA_ARGS__)))
#define __launch_bounds__(...)
#define __maxnreg__(...)
#define __block_size__(...)
#define __builtin_assume(...) ((void)0)
#define __assume(...) ((void)0)
#define __CUDA_ARCH__ 900
