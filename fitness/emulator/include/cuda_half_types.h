// The members and functions that __half and __nv_bfloat16 have in common: arithmetic in fp32, rounded to nearest.
// NAME and PAIR are the types, S the letters of the intrinsics.
#pragma once

#define EVO_HALF_TYPES(NAME, PAIR, S, ENCODE, DECODE)                                                              \
    struct alignas(2) NAME {                                                                                       \
        unsigned short bits;                                                                                       \
        NAME() = default;                                                                                          \
        template <class X, std::enable_if_t<std::is_arithmetic_v<X>, int> = 0>                                     \
        NAME(X value) : bits(ENCODE(static_cast<float>(value))) {}                                                 \
        operator float() const { return DECODE(bits); }                                                            \
        template <class X, std::enable_if_t<std::is_arithmetic_v<X>, int> = 0>                                     \
        NAME& operator=(X value) { bits = ENCODE(static_cast<float>(value)); return *this; }                       \
    };                                                                                                             \
    struct alignas(4) PAIR {                                                                                       \
        NAME x, y;                                                                                                 \
        PAIR() = default;                                                                                          \
        PAIR(NAME x, NAME y) : x(x), y(y) {}                                                                       \
    };                                                                                                             \
    EVO_HALF_OPERATOR(NAME, PAIR, +)                                                                               \
    EVO_HALF_OPERATOR(NAME, PAIR, -)                                                                               \
    EVO_HALF_OPERATOR(NAME, PAIR, *)                                                                               \
    EVO_HALF_OPERATOR(NAME, PAIR, /)                                                                               \
    EVO_HALF_COMPARISON(NAME, ==, __heq)                                                                           \
    EVO_HALF_COMPARISON(NAME, !=, __hne)                                                                           \
    EVO_HALF_COMPARISON(NAME, <, __hlt)                                                                            \
    EVO_HALF_COMPARISON(NAME, >, __hgt)                                                                            \
    EVO_HALF_COMPARISON(NAME, <=, __hle)                                                                           \
    EVO_HALF_COMPARISON(NAME, >=, __hge)                                                                           \
    inline NAME operator-(NAME a) { return NAME(-float(a)); }                                                      \
    inline NAME operator+(NAME a) { return a; }                                                                    \
    inline NAME& operator++(NAME& a) { return a = a + NAME(1); }                                                   \
    inline NAME& operator--(NAME& a) { return a = a - NAME(1); }                                                   \
    EVO_HALF_FUNCTION(NAME, PAIR, __hneg, __hneg2, -a)                                                             \
    EVO_HALF_FUNCTION(NAME, PAIR, __habs, __habs2, ::fabsf(a))                                                     \
    EVO_HALF_FUNCTION(NAME, PAIR, hexp, h2exp, ::expf(a))                                                          \
    EVO_HALF_FUNCTION(NAME, PAIR, hexp2, h2exp2, ::exp2f(a))                                                       \
    EVO_HALF_FUNCTION(NAME, PAIR, hexp10, h2exp10, ::exp10f(a))                                                    \
    EVO_HALF_FUNCTION(NAME, PAIR, hlog, h2log, ::logf(a))                                                          \
    EVO_HALF_FUNCTION(NAME, PAIR, hlog2, h2log2, ::log2f(a))                                                       \
    EVO_HALF_FUNCTION(NAME, PAIR, hlog10, h2log10, ::log10f(a))                                                    \
    EVO_HALF_FUNCTION(NAME, PAIR, hsqrt, h2sqrt, ::sqrtf(a))                                                       \
    EVO_HALF_FUNCTION(NAME, PAIR, hrsqrt, h2rsqrt, 1 / ::sqrtf(a))                                                 \
    EVO_HALF_FUNCTION(NAME, PAIR, hrcp, h2rcp, 1 / a)                                                              \
    EVO_HALF_FUNCTION(NAME, PAIR, hsin, h2sin, ::sinf(a))                                                          \
    EVO_HALF_FUNCTION(NAME, PAIR, hcos, h2cos, ::cosf(a))                                                          \
    EVO_HALF_FUNCTION(NAME, PAIR, htanh, h2tanh, ::tanhf(a))                                                       \
    EVO_HALF_FUNCTION(NAME, PAIR, hfloor, h2floor, ::floorf(a))                                                    \
    EVO_HALF_FUNCTION(NAME, PAIR, hceil, h2ceil, ::ceilf(a))                                                       \
    EVO_HALF_FUNCTION(NAME, PAIR, hrint, h2rint, ::rintf(a))                                                       \
    EVO_HALF_FUNCTION(NAME, PAIR, htrunc, h2trunc, ::truncf(a))                                                    \
    EVO_HALF_BINARY(NAME, PAIR, __hadd, __hadd2, a + b)                                                            \
    EVO_HALF_BINARY(NAME, PAIR, __hadd_rn, __hadd2_rn, a + b)                                                      \
    EVO_HALF_BINARY(NAME, PAIR, __hsub, __hsub2, a - b)                                                            \
    EVO_HALF_BINARY(NAME, PAIR, __hsub_rn, __hsub2_rn, a - b)                                                      \
    EVO_HALF_BINARY(NAME, PAIR, __hmul, __hmul2, a * b)                                                            \
    EVO_HALF_BINARY(NAME, PAIR, __hmul_rn, __hmul2_rn, a * b)                                                      \
    EVO_HALF_BINARY(NAME, PAIR, __hmax, __hmax2, ::fmaxf(a, b))                                                    \
    EVO_HALF_BINARY(NAME, PAIR, __hmin, __hmin2, ::fminf(a, b))                                                    \
    EVO_HALF_BINARY(NAME, PAIR, __hmax_nan, __hmax2_nan, a != a || b != b ? a + b : ::fmaxf(a, b))                 \
    EVO_HALF_BINARY(NAME, PAIR, __hmin_nan, __hmin2_nan, a != a || b != b ? a + b : ::fminf(a, b))                 \
    inline NAME __hdiv(NAME a, NAME b) { return NAME(float(a) / float(b)); }                                       \
    inline PAIR __h2div(PAIR a, PAIR b) { return {__hdiv(a.x, b.x), __hdiv(a.y, b.y)}; }                           \
    inline NAME __hfma(NAME a, NAME b, NAME c) { return NAME(::fmaf(a, b, c)); }                                   \
    inline PAIR __hfma2(PAIR a, PAIR b, PAIR c) { return {__hfma(a.x, b.x, c.x), __hfma(a.y, b.y, c.y)}; }         \
    inline bool __hisnan(NAME a) { return float(a) != float(a); }                                                  \
    inline int __hisinf(NAME a) { return __builtin_isinf_sign(float(a)); }                                         \
    inline float __##S##2float(NAME a) { return a; }                                                               \
    inline NAME __float2##S(float a) { return NAME(a); }                                                           \
    inline NAME __float2##S##_rn(float a) { return NAME(a); }                                                      \
    inline NAME __double2##S(double a) { return NAME(a); }                                                         \
    inline NAME __int2##S##_rn(int a) { return NAME(a); }                                                          \
    inline NAME __uint2##S##_rn(unsigned a) { return NAME(a); }                                                    \
    inline int __##S##2int_rn(NAME a) { return __float2int_rn(a); }                                                \
    inline int __##S##2int_rz(NAME a) { return __float2int_rz(a); }                                                \
    inline unsigned short __##S##_as_ushort(NAME a) { return a.bits; }                                             \
    inline short __##S##_as_short(NAME a) { return static_cast<short>(a.bits); }                                   \
    inline NAME __ushort_as_##S(unsigned short a) { NAME result; result.bits = a; return result; }                 \
    inline NAME __short_as_##S(short a) { return __ushort_as_##S(static_cast<unsigned short>(a)); }                \
    inline PAIR __floats2##S##2_rn(float a, float b) { return {NAME(a), NAME(b)}; }                                \
    inline PAIR __float2##S##2_rn(float a) { return {NAME(a), NAME(a)}; }                                          \
    inline PAIR __float22##S##2_rn(float2 a) { return {NAME(a.x), NAME(a.y)}; }                                    \
    inline float2 __##S##22float2(PAIR a) { return {a.x, a.y}; }                                                   \
    inline PAIR __##S##2##S##2(NAME a) { return {a, a}; }                                                          \
    inline PAIR __halves2##S##2(NAME a, NAME b) { return {a, b}; }                                                 \
    inline PAIR make_##S##2(NAME a, NAME b) { return {a, b}; }                                                     \
    inline NAME __low2##S(PAIR a) { return a.x; }                                                                  \
    inline NAME __high2##S(PAIR a) { return a.y; }                                                                 \
    inline PAIR __low2##S##2(PAIR a) { return {a.x, a.x}; }                                                        \
    inline PAIR __high2##S##2(PAIR a) { return {a.y, a.y}; }                                                       \
    inline PAIR __lowhigh2highlow(PAIR a) { return {a.y, a.x}; }                                                   \
    inline float __low2float(PAIR a) { return a.x; }                                                               \
    inline float __high2float(PAIR a) { return a.y; }

#define EVO_HALF_OPERATOR(NAME, PAIR, OP)                                                   \
    inline NAME operator OP(NAME a, NAME b) { return NAME(float(a) OP float(b)); }          \
    inline NAME& operator OP##=(NAME& a, NAME b) { return a = a OP b; }                     \
    inline PAIR operator OP(PAIR a, PAIR b) { return {a.x OP b.x, a.y OP b.y}; }            \
    inline PAIR& operator OP##=(PAIR& a, PAIR b) { return a = a OP b; }
#define EVO_HALF_COMPARISON(NAME, OP, FUNCTION)                                             \
    inline bool operator OP(NAME a, NAME b) { return float(a) OP float(b); }                \
    inline bool FUNCTION(NAME a, NAME b) { return float(a) OP float(b); }
#define EVO_HALF_FUNCTION(NAME, PAIR, FUNCTION, FOR_TWO, VALUE)                                      \
    inline NAME FUNCTION(NAME value) { const float a = value; return NAME(VALUE); }         \
    inline PAIR FOR_TWO(PAIR a) { return {FUNCTION(a.x), FUNCTION(a.y)}; }
#define EVO_HALF_BINARY(NAME, PAIR, FUNCTION, FOR_TWO, VALUE)                                        \
    inline NAME FUNCTION(NAME left, NAME right) { const float a = left, b = right; return NAME(VALUE); } \
    inline PAIR FOR_TWO(PAIR a, PAIR b) { return {FUNCTION(a.x, b.x), FUNCTION(a.y, b.y)}; }
