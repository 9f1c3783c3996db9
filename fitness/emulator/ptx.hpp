// What instructions of inline PTX do; instructions.py writes calls of these. Registers are unsigned integers of their
// width, whatever their type, as in PTX: an instruction's type says how it reads them.
//
// Chapters are those of NVIDIA's "PTX ISA", version 9.

namespace evo::ptx {

// --- types ------------------------------------------------------------------------------------------------------------

// Numbers of fewer bits than fp32 are computed with as fp32, and rounded to nearest.
struct f16 { static float decoded(std::uint64_t b) { return decoded_fp16(static_cast<unsigned short>(b)); }
             static std::uint64_t encoded(float v) { return encoded_fp16(v); } };
struct bf16 { static float decoded(std::uint64_t b) { return decoded_bf16(static_cast<unsigned short>(b)); }
              static std::uint64_t encoded(float v) { return encoded_bf16(v); } };
struct e4m3 { static float decoded(std::uint64_t b) { return decoded_e4m3(static_cast<unsigned char>(b)); } };
struct e5m2 { static float decoded(std::uint64_t b) { return decoded_e5m2(static_cast<unsigned char>(b)); } };
// The 13 last bits do not take part.
struct tf32 { static float decoded(std::uint64_t b) { return same_bits<float>(static_cast<std::uint32_t>(b) & 0xffffe000u); } };
template <class Half> struct Two {};
using f16x2 = Two<f16>;
using bf16x2 = Two<bf16>;

template <class X> struct Number {  // integers
    static X of(std::uint64_t bits) { return static_cast<X>(bits); }
    static std::uint64_t bits(X value) { return static_cast<std::uint64_t>(static_cast<std::int64_t>(value)); }
};
template <> struct Number<bool> {
    static bool of(std::uint64_t bits) { return bits != 0; }
    static std::uint64_t bits(bool value) { return value; }
};
// Through memory, so that g++ makes no fused multiply-add of two instructions.
template <> struct Number<float> {
    static float of(std::uint64_t bits) { return same_bits<float>(static_cast<std::uint32_t>(bits)); }
    static std::uint64_t bits(float value) { volatile float kept = value; return same_bits<std::uint32_t>(float(kept)); }
};
template <> struct Number<double> {
    static double of(std::uint64_t bits) { return same_bits<double>(bits); }
    static std::uint64_t bits(double value) { volatile double kept = value; return same_bits<std::uint64_t>(double(kept)); }
};
template <class Half> struct Small {
    static float of(std::uint64_t bits) { return Half::decoded(bits); }
    static std::uint64_t bits(float value) { return Half::encoded(value); }
};
template <> struct Number<f16> : Small<f16> {};
template <> struct Number<bf16> : Small<bf16> {};

// --- operands of asm --------------------------------------------------------------------------------------------------

template <class R, class X> R in(X value) {
    if constexpr (std::is_pointer_v<X>) return static_cast<R>(reinterpret_cast<std::uintptr_t>(value));
    else if constexpr (std::is_integral_v<X> || std::is_enum_v<X>) return static_cast<R>(value);
    else return same_bits<R>(value);
}
template <class X, class R> void out(X& to, R bits) {
    if constexpr (std::is_pointer_v<X>) to = reinterpret_cast<X>(static_cast<std::uintptr_t>(bits));
    else if constexpr (std::is_integral_v<X> || std::is_enum_v<X>) to = static_cast<X>(bits);
    else to = same_bits<X>(bits);
}

// --- arithmetic -------------------------------------------------------------------------------------------------------

inline float flushed(float x) { return x != 0 && ::fabsf(x) < 0x1p-126f ? ::copysignf(0.0f, x) : x; }
template <class X> X flushed(X x) { return x; }
template <class X> X saturated(X x) { return x > X(0) ? (x < X(1) ? x : X(1)) : X(0); }

// Rules beside the type: .ftz, .sat.
enum Rule { PLAIN, FTZ = 1, SAT = 2 };

template <class X, int RULE = PLAIN> struct Apply {
    template <class F, class... A> static std::uint64_t bits(F f, A... a) {
        using N = Number<X>;
        const auto read = [](std::uint64_t word) { return RULE & FTZ ? flushed(N::of(word)) : N::of(word); };
        auto value = f(read(a)...);
        if constexpr (RULE & SAT) value = saturated(value);
        return N::bits(static_cast<decltype(N::of(0))>(RULE & FTZ ? flushed(value) : value));
    }
};
template <class Half, int RULE> struct Apply<Two<Half>, RULE> {
    template <class F, class... A> static std::uint64_t bits(F f, A... a) {
        const std::uint64_t low = Apply<Half, RULE>::bits(f, (a & 0xffff)...), high = Apply<Half, RULE>::bits(f, (a >> 16 & 0xffff)...);
        return low | high << 16;
    }
};
// d = f(a...), of type X, whatever the width of the registers.
template <class X, int RULE = PLAIN, class R, class F, class... A> void apply(R& d, F f, A... a) {
    d = static_cast<R>(Apply<X, RULE>::bits(f, static_cast<std::uint64_t>(a)...));
}
// p = f(a, b), where a and b are numbers of type X.
template <class X, int RULE = PLAIN, class F> bool compare(F f, std::uint64_t a, std::uint64_t b) {
    using N = Number<X>;
    return RULE & FTZ ? f(flushed(N::of(a)), flushed(N::of(b))) : f(N::of(a), N::of(b));
}
template <class X> bool unordered(X a, X b) { return a != a || b != b; }

template <class X> X shifted_left(X a, std::uint32_t by) { return by >= 8 * sizeof(X) ? X(0) : static_cast<X>(a << by); }
template <class X> X shifted_right(X a, std::uint32_t by) {
    if (by < 8 * sizeof(X)) return static_cast<X>(a >> by);
    return std::is_signed_v<X> && a < 0 ? X(-1) : X(0);
}
template <class X> X divided(X a, X b) {
    if constexpr (std::is_integral_v<X>) return b == 0 ? X(-1) : std::is_signed_v<X> && b == X(-1) ? static_cast<X>(0 - a) : static_cast<X>(a / b);
    else return a / b;
}
template <class X> X remainder_of(X a, X b) { return b == 0 ? a : std::is_signed_v<X> && b == X(-1) ? X(0) : static_cast<X>(a % b); }
template <class X> struct Wider;
template <> struct Wider<std::int16_t> { using Type = std::int32_t; };
template <> struct Wider<std::uint16_t> { using Type = std::uint32_t; };
template <> struct Wider<std::int32_t> { using Type = std::int64_t; };
template <> struct Wider<std::uint32_t> { using Type = std::uint64_t; };
template <> struct Wider<std::int64_t> { using Type = __int128; };
template <> struct Wider<std::uint64_t> { using Type = unsigned __int128; };
template <class X> X high_part(X a, X b) {
    using W = typename Wider<X>::Type;
    return static_cast<X>(static_cast<W>(a) * static_cast<W>(b) >> (8 * sizeof(X)));
}
// The lesser or greater number; NaN gives way, or wins where `nan`.
template <class X> X least(X a, X b, bool nan = false) {
    if (a != a || b != b) return nan ? a + b : a != a ? b : a;
    return a < b ? a : b < a ? b : static_cast<X>(std::is_floating_point_v<X> && __builtin_signbit(static_cast<double>(b)) ? b : a);
}
template <class X> X greatest(X a, X b, bool nan = false) {
    if (a != a || b != b) return nan ? a + b : a != a ? b : a;
    return a > b ? a : b > a ? b : static_cast<X>(std::is_floating_point_v<X> && __builtin_signbit(static_cast<double>(b)) ? a : b);
}
inline std::uint32_t lop3(std::uint32_t a, std::uint32_t b, std::uint32_t c, unsigned table) {
    std::uint32_t result = 0;
    for (unsigned i = 0; i < 8; ++i)
        if (table >> i & 1) result |= (i & 4 ? a : ~a) & (i & 2 ? b : ~b) & (i & 1 ? c : ~c);
    return result;
}
template <class X> X extracted(X a, std::uint32_t begin, std::uint32_t length) {
    using U = std::make_unsigned_t<X>;
    constexpr unsigned BITS = 8 * sizeof(X);
    begin &= 255, length &= 255;
    if (length == 0) return 0;
    const unsigned last = begin + length - 1 < BITS - 1 ? begin + length - 1 : BITS - 1;
    const bool sign = std::is_signed_v<X> && (static_cast<U>(a) >> last & 1);
    const U mask = shifted_left<U>(static_cast<U>(~U(0)), length);
    const U part = static_cast<U>(shifted_right<U>(static_cast<U>(a), begin) & static_cast<U>(~mask));
    const unsigned have = begin < BITS ? (BITS - begin < length ? BITS - begin : length) : 0;
    return static_cast<X>(sign ? static_cast<U>(part | shifted_left<U>(static_cast<U>(~U(0)), have)) : part);
}
template <class X> X inserted(X a, X b, std::uint32_t begin, std::uint32_t length) {
    begin &= 255, length &= 255;
    const X mask = static_cast<X>(shifted_left<X>(static_cast<X>(~shifted_left<X>(static_cast<X>(~X(0)), length)), begin));
    return static_cast<X>((b & ~mask) | (shifted_left<X>(a, begin) & mask));
}
template <class X> X reversed(X a) {
    X result = 0;
    for (unsigned i = 0; i < 8 * sizeof(X); ++i) result = static_cast<X>(result << 1 | (a >> i & 1));
    return result;
}
inline unsigned leading_zeros(std::uint32_t a) { return a ? static_cast<unsigned>(__builtin_clz(a)) : 32; }
inline unsigned leading_zeros(std::uint64_t a) { return a ? static_cast<unsigned>(__builtin_clzll(a)) : 64; }
inline std::uint32_t funnel(std::uint32_t low, std::uint32_t high, std::uint32_t by, bool left, bool wrap) {
    const unsigned n = wrap ? by & 31 : by > 32 ? 32 : by;
    const std::uint64_t both = static_cast<std::uint64_t>(high) << 32 | low;
    return static_cast<std::uint32_t>(left ? both << n >> 32 : both >> n);
}
// cvt.rna.tf32.f32: 10 bits of fraction, ties away from zero.
inline std::uint32_t rounded_tf32(std::uint32_t bits, bool to_even) {
    if ((bits & 0x7f800000u) == 0x7f800000u) return bits & 0x7fffffu ? 0x7fffffffu : bits;
    return (bits + (to_even ? 0xfffu + (bits >> 13 & 1) : 0x1000u)) & 0xffffe000u;
}
// To an integer: what is out of range becomes the nearest there is, NaN 0.
template <class To> std::uint64_t to_integer(double x) {
    using Limits = std::numeric_limits<To>;
    if (!(x == x)) return 0;
    if (x <= static_cast<double>(Limits::min())) return Number<To>::bits(Limits::min());
    if (x >= static_cast<double>(Limits::max())) return Number<To>::bits(Limits::max());
    return Number<To>::bits(static_cast<To>(x));
}

// --- memory -----------------------------------------------------------------------------------------------------------

inline char* shared(std::uint64_t address, std::size_t bytes, const char* name, int line) {
    return static_cast<char*>(shared_at(address, bytes, bytes, name, line));
}
inline char* generic(std::uint64_t address, std::size_t bytes, const char* name, int line) {
    if (address % bytes) fail("line %d: %s at %llu bytes beyond a multiple of %zu", line, name, static_cast<unsigned long long>(address % bytes), bytes);
    return reinterpret_cast<char*>(address);
}
template <class X> std::uint64_t loaded(const char* at) {
    std::make_unsigned_t<X> value;
    std::memcpy(&value, at, sizeof value);
    return Number<X>::bits(static_cast<X>(value));
}
template <class X> void stored(char* at, std::uint64_t bits) {
    const auto value = static_cast<X>(bits);
    std::memcpy(at, &value, sizeof value);
}
// What was there, of W; the new value is f(old).
template <class W, class F> W exchanged(char* at, F f) {
    tick();
    W old;
    std::memcpy(&old, at, sizeof old);
    const W value = f(old);
    std::memcpy(at, &value, sizeof value);
    return old;
}

// Chapter 9.7.9.25.3.1, cp.async: of `from` only the bytes that are no zeros are read.
inline void copy_async(std::uint64_t to, std::uint64_t from, std::size_t bytes, std::size_t source_bytes, int line) {
    if (source_bytes > bytes) fail("line %d: cp.async of %zu bytes with a src-size of %zu", line, bytes, source_bytes);
    char* const there = shared(to, bytes, "cp.async", line);
    generic(from, bytes, "cp.async from global memory", line);
    copy_later(there, reinterpret_cast<const void*>(from), bytes, bytes - source_bytes);
}

// --- warps ------------------------------------------------------------------------------------------------------------

inline std::uint32_t shuffled_bits(Kind kind, std::uint32_t value, std::uint32_t by, std::uint32_t c, std::uint32_t mask, bool& inside, int line) {
    const unsigned segment = c >> 8 & 31, width = 32 - segment, self = lane();
    if (width & (width - 1) || (~segment & c & 31) != (kind == Kind::UP ? 0 : ~segment & 31))
        not_emulated("not emulated: shfl.sync with this clamp", line);
    const int first = static_cast<int>(self & segment), last = first + static_cast<int>(width) - 1, here = static_cast<int>(self), n = static_cast<int>(by & 31);
    inside = kind == Kind::UP ? here - n >= first : kind == Kind::DOWN ? here + n <= last : kind == Kind::XOR ? (here ^ n) <= last : true;
    return static_cast<std::uint32_t>(shuffle(kind, mask, value, n, static_cast<int>(width), line));
}
inline bool elected(std::uint32_t mask, int line) {
    collective(Kind::SYNC_WARP, mask, 0, line);
    return lane() == static_cast<unsigned>(__builtin_ctz(mask));
}

// Chapter 9.7.14.5.15, ldmatrix: lane 8 m + r has the address of row r of matrix m; of every matrix lane l gets two
// neighbours, from column 2 (l % 4) of row l / 4, or of what is transposed.
struct Rows {
    std::uint64_t address;
    std::uint32_t d[4];
};
inline char* row_at(const Rows& rows, unsigned of, const char* name, int line) {
    blame(of);
    return static_cast<char*>(shared_at(rows.address, 16, 16, name, line));
}
template <int COUNT, bool TRANS, bool STORE> void move_rows(void* const (&brought)[32], int line) {
    for (unsigned m = 0; m < COUNT; ++m) {
        char* at[8];
        for (unsigned r = 0; r < 8; ++r) at[r] = row_at(*static_cast<Rows*>(brought[8 * m + r]), 8 * m + r, STORE ? "stmatrix" : "ldmatrix", line);
        for (unsigned l = 0; l < 32; ++l) {
            std::uint32_t& word = static_cast<Rows*>(brought[l])->d[m];
            std::uint16_t both[2];
            if (STORE) std::memcpy(both, &word, sizeof both);
            for (unsigned i = 0; i < 2; ++i) {
                const unsigned row = TRANS ? l % 4 * 2 + i : l / 4, column = TRANS ? l / 4 : l % 4 * 2 + i;
                if (STORE) std::memcpy(at[row] + 2 * column, &both[i], 2);
                else std::memcpy(&both[i], at[row] + 2 * column, 2);
            }
            if (!STORE) std::memcpy(&word, both, sizeof both);
        }
    }
}
template <int COUNT, bool TRANS, class... R> void load_matrix(std::uint64_t address, int line, R&... d) {
    static_assert(sizeof...(d) == COUNT, "ldmatrix: as many registers as matrices");
    Rows rows{address, {}};
    together("ldmatrix", move_rows<COUNT, TRANS, false>, &rows, line);
    unsigned i = 0;
    ((d = rows.d[i++]), ...);
}
template <int COUNT, bool TRANS, class... R> void store_matrix(std::uint64_t address, int line, R... d) {
    static_assert(sizeof...(d) == COUNT, "stmatrix: as many registers as matrices");
    Rows rows{address, {static_cast<std::uint32_t>(d)...}};
    together("stmatrix", move_rows<COUNT, TRANS, true>, &rows, line);
}
// Chapter 9.7.14.5.17, movmatrix
inline void transpose_matrix(void* const (&brought)[32], int) {
    std::uint16_t matrix[8][8];
    for (unsigned l = 0; l < 32; ++l) std::memcpy(&matrix[l / 4][l % 4 * 2], static_cast<Rows*>(brought[l])->d, 4);
    for (unsigned l = 0; l < 32; ++l)
        for (unsigned i = 0; i < 2; ++i)
            std::memcpy(reinterpret_cast<char*>(static_cast<Rows*>(brought[l])->d) + 2 * i, &matrix[l % 4 * 2 + i][l / 4], 2);
}
inline std::uint32_t transposed(std::uint32_t a, int line) {
    Rows rows{0, {a}};
    together("movmatrix", transpose_matrix, &rows, line);
    return rows.d[0];
}

// Chapters 9.7.14.5.1 to 9.7.14.5.11, the fragments of mma. With group = lane / 4 and t = lane % 4, a register of A or B
// holds `EACH` neighbours along k, from column t EACH of row `group`; A's next register is 8 rows further down where there
// are 16 of them, and all others 4 EACH further along k. Of C and D a lane has columns 2 t and 2 t + 1 of row `group`, and
// then of row group + 8.
template <class T> struct Element {
    static constexpr unsigned BITS = 8 * sizeof(T);
    using Sum = std::int64_t;
    static Sum of(std::uint64_t bits) { return static_cast<T>(bits); }
};
template <class T, unsigned WIDTH> struct Fraction {
    static constexpr unsigned BITS = WIDTH;
    using Sum = double;
    static Sum of(std::uint64_t bits) { return T::decoded(bits); }
};
template <> struct Element<f16> : Fraction<f16, 16> {};
template <> struct Element<bf16> : Fraction<bf16, 16> {};
template <> struct Element<tf32> : Fraction<tf32, 32> {};
template <> struct Element<e4m3> : Fraction<e4m3, 8> {};
template <> struct Element<e5m2> : Fraction<e5m2, 8> {};
template <> struct Element<double> {
    static constexpr unsigned BITS = 64;
    using Sum = double;
    static Sum of(std::uint64_t bits) { return same_bits<double>(bits); }
};

template <class C> struct Accumulator {
    static constexpr unsigned EACH = 1;
    template <class Sum> static Sum of(std::uint64_t bits, unsigned) { return static_cast<Sum>(Number<C>::of(bits)); }
    template <class Sum> static std::uint64_t with(std::uint64_t, Sum value, unsigned) { return Number<C>::bits(static_cast<C>(value)); }
};
template <> struct Accumulator<f16> {
    static constexpr unsigned EACH = 2;
    template <class Sum> static Sum of(std::uint64_t bits, unsigned i) { return f16::decoded(bits >> (16 * i)); }
    template <class Sum> static std::uint64_t with(std::uint64_t bits, Sum value, unsigned i) {
        return (bits & ~(0xffffull << (16 * i))) | f16::encoded(static_cast<float>(value)) << (16 * i);
    }
};

struct Fragments {
    std::uint64_t a[8], b[4], c[4], d[4];
};

template <class A, class B, class C, class D, int M, int N, int K, bool SATURATED> struct Mma {
    using Sum = typename Element<A>::Sum;
    static constexpr unsigned REGISTER = Element<A>::BITS == 64 ? 64 : 32, EACH = REGISTER / Element<A>::BITS, ROWS = M / 8;
    static constexpr unsigned A_REGISTERS = M * K / 32 / EACH, B_REGISTERS = N * K / 32 / EACH;
    static constexpr unsigned C_REGISTERS = M * N / 32 / Accumulator<C>::EACH, D_REGISTERS = M * N / 32 / Accumulator<D>::EACH;
    static_assert(Element<A>::BITS == Element<B>::BITS);

    template <class X> static Sum element(std::uint64_t bits, unsigned i) {
        return Element<X>::of(Element<X>::BITS == 64 ? bits : bits >> (i * Element<X>::BITS % 64) & (~0ull >> (64 - Element<X>::BITS)));
    }
    static void multiply(void* const (&brought)[32], int) {
        Sum a[M][K], b[K][N];
        for (unsigned l = 0; l < 32; ++l) {
            const auto& f = *static_cast<const Fragments*>(brought[l]);
            const unsigned group = l / 4, t = l % 4;
            for (unsigned r = 0; r < A_REGISTERS; ++r)
                for (unsigned i = 0; i < EACH; ++i)
                    a[group + 8 * (r % ROWS)][t * EACH + i + 4 * EACH * (r / ROWS)] = element<A>(f.a[r], i);
            for (unsigned r = 0; r < B_REGISTERS; ++r)
                for (unsigned i = 0; i < EACH; ++i) b[t * EACH + i + 4 * EACH * r][group] = element<B>(f.b[r], i);
        }
        Sum sums[M][N] = {};
        for (unsigned i = 0; i < M; ++i)
            for (unsigned k = 0; k < K; ++k)
                for (unsigned j = 0; j < N; ++j) sums[i][j] += a[i][k] * b[k][j];
        for (unsigned l = 0; l < 32; ++l) {
            auto& f = *static_cast<Fragments*>(brought[l]);
            for (unsigned i = 0; i < M * N / 32; ++i) {
                constexpr unsigned IN_C = Accumulator<C>::EACH, IN_D = Accumulator<D>::EACH;
                Sum value = sums[l / 4 + i / 2 * 8][l % 4 * 2 + i % 2] + Accumulator<C>::template of<Sum>(f.c[i / IN_C], i % IN_C);
                if constexpr (SATURATED) value = value < INT32_MIN ? INT32_MIN : value > INT32_MAX ? INT32_MAX : value;
                f.d[i / IN_D] = Accumulator<D>::template with<Sum>(f.d[i / IN_D], value, i % IN_D);
            }
        }
    }
    static void run(Fragments& f, int line) { together("mma.sync", multiply, &f, line); }
};

}  // namespace evo::ptx
