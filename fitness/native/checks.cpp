// What the verifier does over whole buffers, at memory speed. Loaded by fitness/native.py; never sees candidate code.
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace {

struct Report {
    double max_ratio;       // largest |y - expected| / allowed
    std::int64_t mismatches;
    std::int64_t first_bad; // -1: none
};

template <class T>
Report compare(const T* y, const double* expected, const double* allowed, std::int64_t n) {
    Report report{0.0, 0, -1};
    for (std::int64_t i = 0; i < n; ++i) {
        const double value = static_cast<double>(y[i]), want = expected[i];
        const double error = std::fabs(value - want);
        double ratio;
        if (error <= allowed[i]) {
            ratio = allowed[i] > 0 ? error / allowed[i] : 0.0;
        } else if (value == want || (std::isnan(value) && std::isnan(want))) {
            ratio = 0.0;  // equal infinities, NaN where the reference has one
        } else {
            ratio = allowed[i] > 0 && std::isfinite(error) ? error / allowed[i] : std::numeric_limits<double>::infinity();
            if (report.mismatches++ == 0) report.first_bad = i;
        }
        if (ratio > report.max_ratio) report.max_ratio = ratio;
    }
    return report;
}

}  // namespace

extern "C" {

void evo_compare_f32(const float* y, const double* e, const double* a, std::int64_t n, Report* r) { *r = compare(y, e, a, n); }
void evo_compare_f64(const double* y, const double* e, const double* a, std::int64_t n, Report* r) { *r = compare(y, e, a, n); }

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
