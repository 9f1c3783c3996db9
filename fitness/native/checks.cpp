// What the verifier does over whole buffers, at memory speed. Loaded by fitness/sandbox/native.py; never sees candidate code.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
// Compiled twice, all that is called within; the machine that loads it picks.
#define EVO_VECTORS __attribute__((flatten, target_clones("avx2", "default")))
#else
#define EVO_VECTORS
#endif
#pragma GCC diagnostic ignored "-Wpsabi"  // no function of this file hands vectors to another one

namespace {

struct Judgement {
    double max_ratio;          // largest |y - expected| / allowed
    double square_sum;         // of the same ratios, where finite
    std::int64_t mismatches;
    std::int64_t first_bad;    // -1: none
    std::int64_t sign_changes; // between neighbouring errors
};

constexpr int LANES = 4;
typedef double Doubles __attribute__((vector_size(LANES * sizeof(double))));
typedef float Floats __attribute__((vector_size(LANES * sizeof(float))));
typedef std::int64_t Masks __attribute__((vector_size(LANES * sizeof(std::int64_t))));

constexpr std::int64_t BLOCK = 256;
constexpr double LARGEST = std::numeric_limits<double>::max();

template <class V, class T>
V loaded(const T* p) {
    V v;
    std::memcpy(&v, p, sizeof v);
    return v;
}
Doubles wide(const double* p) { return loaded<Doubles>(p); }
Doubles wide(const float* p) { return __builtin_convertvector(loaded<Floats>(p), Doubles); }
// Zeros where there are fewer, which add nothing to a sum.
Doubles up_to(const double* p, std::int64_t count) {
    if (count >= LANES) return wide(p);
    Doubles v{};
    for (std::int64_t lane = 0; lane < count; ++lane) v[lane] = p[lane];
    return v;
}
Doubles size_of(Doubles v) { return (Doubles)((Masks)v & std::numeric_limits<std::int64_t>::max()); }
Doubles where(Masks condition, Doubles v) { return (Doubles)((Masks)v & condition); }  // else 0
double sum(Doubles v) { return (v[0] + v[1]) + (v[2] + v[3]); }

// |y - expected| / allowed; 0 where anything goes or both are the same infinity or NaN, infinite where nothing helps.
double ratio_of(double value, double want, double allowed) {
    if (!std::isfinite(want)) return value == want || (std::isnan(value) && std::isnan(want)) ? 0.0 : HUGE_VAL;
    if (allowed == HUGE_VAL) return 0.0;
    const double error = std::fabs(value - want);
    if (error == 0) return 0.0;
    return allowed > 0 && std::isfinite(error) ? error / allowed : HUGE_VAL;
}

// A block in which every element is within bounds, the usual case: no branches.
template <class T>
bool judge_quickly(const T* y, const double* expected, const double* allowed, double* errors, Judgement* total) {
    Doubles worst{}, squares{};
    Masks outside{};
    for (std::int64_t i = 0; i < BLOCK; i += LANES) {
        const Doubles error = wide(y + i) - wide(expected + i), size = size_of(error), bound = wide(allowed + i);
        const Doubles ratio = where(size != 0, size / bound);
        std::memcpy(errors + i, &error, sizeof error);
        outside |= ~((size <= bound) & (size <= LARGEST));  // infinities of any kind are for `ratio_of`
        worst = ratio > worst ? ratio : worst;
        squares += ratio * ratio;
    }
    if (outside[0] | outside[1] | outside[2] | outside[3]) return false;
    total->max_ratio = std::max({total->max_ratio, worst[0], worst[1], worst[2], worst[3]});
    total->square_sum += sum(squares);
    return true;
}

template <class T>
void judge_slowly(const T* y, const double* expected, const double* allowed, std::int64_t begin, std::int64_t count,
                  double* errors, Judgement* total) {
    for (std::int64_t i = begin; i < begin + count; ++i) {
        const double ratio = ratio_of(y[i], expected[i], allowed[i]);
        errors[i - begin] = static_cast<double>(y[i]) - expected[i];
        if (ratio > 1 && total->mismatches++ == 0) total->first_bad = i;
        if (ratio > total->max_ratio) total->max_ratio = ratio;
        if (std::isfinite(ratio)) total->square_sum += ratio * ratio;
    }
}

// How often neighbours among the count + 1 errors differ in sign.
std::int64_t changes(const double* errors, std::int64_t count) {
    Masks changed{};
    std::int64_t i = 0, found = 0;
    for (; i + LANES <= count; i += LANES) changed -= (wide(errors + i) < 0) ^ (wide(errors + i + 1) < 0);
    for (; i < count; ++i) found += (errors[i] < 0) != (errors[i + 1] < 0);
    return found + changed[0] + changed[1] + changed[2] + changed[3];
}

template <class T>
Judgement judge(const T* y, const double* expected, const double* allowed, std::int64_t n) {
    Judgement total{0.0, 0.0, 0, -1, 0};
    double errors[BLOCK + 1];
    errors[0] = n ? static_cast<double>(y[0]) - expected[0] : 0.0;
    for (std::int64_t begin = 0; begin < n; begin += BLOCK) {
        const std::int64_t count = std::min(n - begin, BLOCK);
        if (count < BLOCK || !judge_quickly(y + begin, expected + begin, allowed + begin, errors + 1, &total))
            judge_slowly(y, expected, allowed, begin, count, errors + 1, &total);
        total.sign_changes += changes(errors, count);
        errors[0] = errors[count];
    }
    return total;
}

constexpr std::int64_t LINE = 64;
#if defined(__x86_64__)
bool flushes_at_once() {
    unsigned a, b, c, d;
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) && b & bit_CLFLUSHOPT;
}
__attribute__((target("clflushopt"))) void flush_at_once(const unsigned char* p, std::int64_t bytes) {
    for (std::int64_t i = 0; i < bytes; i += LINE) _mm_clflushopt(const_cast<unsigned char*>(p + i));
}
#endif

}  // namespace

extern "C" {

EVO_VECTORS void evo_judge_f32(const float* y, const double* e, const double* a, std::int64_t n, Judgement* j) { *j = judge(y, e, a, n); }
EVO_VECTORS void evo_judge_f64(const double* y, const double* e, const double* a, std::int64_t n, Judgement* j) { *j = judge(y, e, a, n); }

// allowed = rounding |y| + growth s + eta; infinite where overflow on the way can spoil y, 0 where y is not finite.
// sums[0] and sums[1]: of the squares of (out |y|) and (out |y| + inner s) relative to `allowed`, what rounding usually costs.
EVO_VECTORS void evo_bound(const double* y, const double* s, std::int64_t n, double rounding, double growth, double eta, double y_limit,
               double s_limit, double out, double inner, double* allowed, double* sums) {
    Doubles least_squares{}, usual_squares{};
    for (std::int64_t i = 0; i < n; i += LANES) {
        const Doubles size = size_of(up_to(y + i, n - i)), total = size_of(up_to(s + i, n - i));
        const Doubles bound = rounding * size + growth * total + eta;
        const Masks within = (size <= y_limit) & (total <= s_limit), counts = within & (bound != 0);
        const Doubles found = within ? bound : where(size <= LARGEST, HUGE_VAL - Doubles{});
        for (std::int64_t lane = 0; lane < LANES && i + lane < n; ++lane) allowed[i + lane] = found[lane];
        const Doubles least = where(counts, out * size / bound), usual = where(counts, (out * size + inner * total) / bound);
        least_squares += least * least;
        usual_squares += usual * usual;
    }
    sums[0] = sum(least_squares);
    sums[1] = sum(usual_squares);
}

void evo_fill(unsigned char* p, std::int64_t bytes, int value) { std::memset(p, value, static_cast<std::size_t>(bytes)); }

// Index of the first byte that is not `value`, or -1.
std::int64_t evo_differs(const unsigned char* p, std::int64_t bytes, int value) {
    for (std::int64_t i = 0; i < bytes; ++i)
        if (p[i] != static_cast<unsigned char>(value)) return i;
    return -1;
}

// Writes back and drops every cache line of the range, from all cores: caches are coherent by physical address. On
// processors that have it, the instruction that waits for no other line: the fence waits for all of them.
void evo_flush(const unsigned char* p, std::int64_t bytes) {
#if defined(__x86_64__)
    static const bool at_once = flushes_at_once();
    if (at_once)
        flush_at_once(p, bytes);
    else
        for (std::int64_t i = 0; i < bytes; i += LINE) _mm_clflush(p + i);
    _mm_mfence();
#elif defined(__aarch64__)
    for (std::int64_t i = 0; i < bytes; i += LINE) asm volatile("dc civac, %0" ::"r"(p + i) : "memory");
    asm volatile("dsb ish" ::: "memory");
#endif
}
}
