// What the verifier does over whole buffers, at memory speed. Loaded by fitness/native.py; never sees candidate code.
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#if defined(__x86_64__)
#include <immintrin.h>
// Compiled twice, all that is called within; the machine that loads it picks.
#define EVO_VECTORS __attribute__((flatten, target_clones("avx2", "default")))
#else
#define EVO_VECTORS
#endif

namespace {

struct Judgement {
    double max_ratio;          // largest |y - expected| / allowed
    double square_sum;         // of the same ratios, where finite
    std::int64_t mismatches;
    std::int64_t first_bad;    // -1: none
    std::int64_t sign_changes; // between neighbouring errors
};

constexpr std::int64_t BLOCK = 256;
constexpr int LANES = 8;
constexpr double TINY = std::numeric_limits<double>::min(), LARGEST = std::numeric_limits<double>::max();

// |y - expected| / allowed; 0 where anything goes or both are the same infinity or NaN, infinite where nothing helps.
double ratio_of(double value, double want, double allowed) {
    if (!std::isfinite(want)) return value == want || (std::isnan(value) && std::isnan(want)) ? 0.0 : HUGE_VAL;
    if (allowed == HUGE_VAL) return 0.0;
    const double error = std::fabs(value - want);
    if (error == 0) return 0.0;
    return allowed > 0 && std::isfinite(error) ? error / allowed : HUGE_VAL;
}

// A block in which every element is within bounds, the usual case: no branches, lanes that the compiler makes vectors.
template <class T>
bool judge_quickly(const T* y, const double* expected, const double* allowed, double* errors, Judgement* total) {
    double worst[LANES] = {}, squares[LANES] = {};
    std::int64_t outside = 0;
    for (std::int64_t i = 0; i < BLOCK; i += LANES)
        for (int lane = 0; lane < LANES; ++lane) {
            const double error = static_cast<double>(y[i + lane]) - expected[i + lane], size = std::fabs(error);
            const double bound = allowed[i + lane], ratio = size / (bound > TINY ? bound : TINY);
            errors[i + lane] = error;
            outside += !(size <= bound) || !(size <= LARGEST);  // infinities of any kind are for `ratio_of`
            worst[lane] = ratio > worst[lane] ? ratio : worst[lane];
            squares[lane] += ratio * ratio;
        }
    if (outside) return false;
    for (int lane = 0; lane < LANES; ++lane) {
        total->max_ratio = std::fmax(total->max_ratio, worst[lane]);
        total->square_sum += squares[lane];
    }
    return true;
}

template <class T>
Judgement judge(const T* y, const double* expected, const double* allowed, std::int64_t n) {
    Judgement total{0.0, 0.0, 0, -1, 0};
    double errors[BLOCK + 1];
    errors[0] = n ? static_cast<double>(y[0]) - expected[0] : 0.0;
    for (std::int64_t begin = 0; begin < n; begin += BLOCK) {
        const std::int64_t count = n - begin < BLOCK ? n - begin : BLOCK;
        const bool quick = count == BLOCK && judge_quickly(y + begin, expected + begin, allowed + begin, errors + 1, &total);
        for (std::int64_t i = begin; !quick && i < begin + count; ++i) {
            const double ratio = ratio_of(y[i], expected[i], allowed[i]);
            errors[1 + i - begin] = static_cast<double>(y[i]) - expected[i];
            if (ratio > 1 && total.mismatches++ == 0) total.first_bad = i;
            if (ratio > total.max_ratio) total.max_ratio = ratio;
            if (std::isfinite(ratio)) total.square_sum += ratio * ratio;
        }
        for (std::int64_t i = 0; i < count; ++i) total.sign_changes += (errors[i] < 0) != (errors[i + 1] < 0);
        errors[0] = errors[count];
    }
    return total;
}

}  // namespace

extern "C" {

EVO_VECTORS void evo_judge_f32(const float* y, const double* e, const double* a, std::int64_t n, Judgement* j) { *j = judge(y, e, a, n); }
EVO_VECTORS void evo_judge_f64(const double* y, const double* e, const double* a, std::int64_t n, Judgement* j) { *j = judge(y, e, a, n); }

// allowed = rounding |y| + growth s + eta; infinite where overflow on the way can spoil y, 0 where y is not finite.
// sums[0] and sums[1]: of the squares of (out |y|) and (out |y| + inner s) relative to `allowed`, what rounding usually costs.
EVO_VECTORS void evo_bound(const double* y, const double* s, std::int64_t n, double rounding, double growth, double eta, double y_limit,
               double s_limit, double out, double inner, double* allowed, double* sums) {
    double floor_squares = 0, usual_squares = 0;
    for (std::int64_t i = 0; i < n; ++i) {
        const double size = std::fabs(y[i]), total = std::fabs(s[i]), bound = rounding * size + growth * total + eta;
        const bool overflows = !(size <= y_limit) || !(total <= s_limit);
        allowed[i] = overflows ? (std::isfinite(y[i]) ? HUGE_VAL : 0.0) : bound;
        const double least = overflows ? 0 : out * size / bound, usual = overflows ? 0 : (out * size + inner * total) / bound;
        floor_squares += least * least;
        usual_squares += usual * usual;
    }
    sums[0] = floor_squares;
    sums[1] = usual_squares;
}

void evo_fill(unsigned char* p, std::int64_t bytes, int value) { std::memset(p, value, static_cast<std::size_t>(bytes)); }

// Index of the first byte that is not `value`, or -1.
std::int64_t evo_differs(const unsigned char* p, std::int64_t bytes, int value) {
    for (std::int64_t i = 0; i < bytes; ++i)
        if (p[i] != static_cast<unsigned char>(value)) return i;
    return -1;
}

// Writes back and drops every cache line of the range, from all cores: caches are coherent by physical address.
void evo_flush(const unsigned char* p, std::int64_t bytes) {
#if defined(__x86_64__)
    for (std::int64_t i = 0; i < bytes; i += 64) _mm_clflush(p + i);
    _mm_mfence();
#elif defined(__aarch64__)
    for (std::int64_t i = 0; i < bytes; i += 64) asm volatile("dc civac, %0" ::"r"(p + i) : "memory");
    asm volatile("dsb ish" ::: "memory");
#endif
}
}
