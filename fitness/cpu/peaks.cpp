// What this machine can do at most, for floors that no honest kernel goes below: each figure is the best of many short
// runs, since whatever disturbs a run only makes it slower.
//
//   peaks THREADS MILLISECONDS
//
// Prints one figure per line: its name, a space, its value. Takes about MILLISECONDS in all.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <omp.h>
#include <sys/mman.h>
#include <vector>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace {

using Clock = std::chrono::steady_clock;

#if defined(__AVX512F__)
constexpr int WIDEST = 64;
#elif defined(__AVX__)
constexpr int WIDEST = 32;
#else
constexpr int WIDEST = 16;
#endif
constexpr std::size_t LINE = 64;
constexpr std::size_t HUGE_PAGE = 2 << 20;
constexpr std::size_t PER_THREAD = 1 << 20;  // a run of some 50 us, long against the start of the threads

double seconds(Clock::time_point begin, Clock::time_point end) {
    return std::chrono::duration<double>(end - begin).count();
}
double seconds_since(Clock::time_point begin) { return seconds(begin, Clock::now()); }

// --- memory ---------------------------------------------------------------------------------------------------------

void flush(const char* p, std::size_t bytes) {
#if defined(__x86_64__)
    for (std::size_t i = 0; i < bytes; i += LINE) _mm_clflush(p + i);
    _mm_mfence();
#elif defined(__aarch64__)
    for (std::size_t i = 0; i < bytes; i += LINE) asm volatile("dc civac, %0" ::"r"(p + i) : "memory");
    asm volatile("dsb ish" ::: "memory");
#endif
}

// Reads `bytes` as STREAMS sequential streams, asking for lines AHEAD bytes before they are needed (0: leaves that to the
// hardware).
template <int STREAMS, int AHEAD>
void read_all(const char* p, std::size_t bytes) {
    typedef std::int64_t Words __attribute__((vector_size(WIDEST)));
    const std::size_t part = bytes / STREAMS;
    Words sum[4] = {};
    for (std::size_t i = 0; i < part; i += 4 * LINE) {
        for (std::size_t s = 0; s < STREAMS; ++s) {
            for (std::size_t l = 0; l < 4; ++l) {
                const char* q = p + s * part + i + l * LINE;
                if (AHEAD) __builtin_prefetch(q + AHEAD, 0, 0);
                for (std::size_t v = 0; v < LINE; v += WIDEST) {
                    Words words;
                    std::memcpy(&words, q + v, sizeof words);
                    sum[l] += words;
                }
            }
        }
    }
    volatile std::int64_t used = sum[0][0] + sum[1][0] + sum[2][0] + sum[3][0];
    (void)used;
}

// Copies half onto the other half, past the caches where the machine can: no line is read in order to be overwritten.
void copy_half(const char* p, std::size_t bytes) {
    char* to = const_cast<char*>(p) + bytes / 2;
#if defined(__x86_64__)
    for (std::size_t i = 0; i < bytes / 2; i += sizeof(__m128i)) {
        if (i % LINE == 0) __builtin_prefetch(p + i + 1024, 0, 0);
        _mm_stream_si128(reinterpret_cast<__m128i*>(to + i), _mm_load_si128(reinterpret_cast<const __m128i*>(p + i)));
    }
    _mm_sfence();
#else
    std::memcpy(to, p, bytes / 2);
#endif
}

using Mover = void (*)(const char*, std::size_t);
constexpr Mover READERS[] = {read_all<1, 0>, read_all<2, 0>,   read_all<2, 1024>,
                             read_all<4, 0>, read_all<4, 512>, read_all<8, 0>};
constexpr Mover COPIERS[] = {copy_half};

// One run of all threads at once, from cold caches; from the first one's start to the last one's end.
double moved_s(Mover move, const std::vector<char*>& data) {
    std::vector<Clock::time_point> begins(data.size()), ends(data.size());
#pragma omp parallel num_threads(static_cast<int>(data.size()))
    {
        const auto me = static_cast<std::size_t>(omp_get_thread_num());
        flush(data[me], PER_THREAD);
#pragma omp barrier
        begins[me] = Clock::now();
        move(data[me], PER_THREAD);
        ends[me] = Clock::now();
    }
    return seconds(*std::min_element(begins.begin(), begins.end()), *std::max_element(ends.begin(), ends.end()));
}

// The movers take turns, so that a bad moment of the machine does not hit one of them alone.
template <std::size_t COUNT>
double moved_gb_s(const Mover (&movers)[COUNT], int threads, double budget_s) {
    std::vector<char*> data;
    for (int t = 0; t < threads; ++t) {
        // Large pages where there are any, so that no walk through page tables hides what the memory itself can do.
        void* p = std::aligned_alloc(HUGE_PAGE, std::max(PER_THREAD, HUGE_PAGE));
        if (!p) std::exit(1);
        madvise(p, HUGE_PAGE, MADV_HUGEPAGE);
        std::memset(p, 1, PER_THREAD);
        data.push_back(static_cast<char*>(p));
    }
    double best_s = 1e30;
    const auto start = Clock::now();
    for (std::size_t run = 0; run < 2 * COUNT || seconds_since(start) < budget_s; ++run)
        best_s = std::min(best_s, moved_s(movers[run % COUNT], data));
    for (char* p : data) std::free(p);
    return static_cast<double>(threads) * PER_THREAD / best_s / 1e9;
}

// --- arithmetic -----------------------------------------------------------------------------------------------------

#if defined(__AVX512F__) || defined(__aarch64__)
constexpr int CHAINS = 24;  // of 32 registers
#else
constexpr int CHAINS = 12;  // of 16
#endif
constexpr int ROUNDS = 4000;

// Independent chains of fused multiply-adds and of additions; how many operations that were.
template <class X, int BYTES, int FUSED, int ADDS>
double compute() {
    typedef X V __attribute__((vector_size(BYTES)));
    V fused[FUSED], added[ADDS + 1];
    const V scale = V{} + X(0.999), shift = V{} + X(1e-3);
    for (auto& v : fused) v = shift;
    for (auto& v : added) v = shift;
    for (int round = 0; round < ROUNDS; ++round) {
#pragma GCC unroll 32
        for (int i = 0; i < FUSED; ++i) fused[i] = fused[i] * scale + shift;
#pragma GCC unroll 32
        for (int i = 0; i < ADDS; ++i) added[i] += shift;
    }
    V sum = added[ADDS];
    for (auto& v : fused) sum += v;
    for (auto& v : added) sum += v;
    volatile X used = sum[0];
    (void)used;
    return static_cast<double>(ROUNDS) * (2 * FUSED + ADDS) * (BYTES / sizeof(X));
}

// The sum over threads of each one's best: all run at once, and a thread that had to wait does not lower its best. Some
// cores have units that only add, so multiply-adds alone are not the most they can do; some clock wide vectors lower.
template <class X>
double gflop_s(int threads, double budget_s) {
    using Run = double (*)();
    constexpr Run RUNS[] = {compute<X, WIDEST, CHAINS, 0>, compute<X, WIDEST, CHAINS / 2 + 1, CHAINS / 2 + 1>,
                            compute<X, WIDEST / 2, CHAINS, 0>, compute<X, WIDEST / 2, CHAINS / 2 + 1, CHAINS / 2 + 1>};
    double sum = 0;
#pragma omp parallel num_threads(threads) reduction(+ : sum)
    {
        double best = 0;
        const auto start = Clock::now();
        for (std::size_t run = 0; run < std::size(RUNS) || seconds_since(start) < budget_s; ++run) {
            const auto begin = Clock::now();
            const double done = RUNS[run % std::size(RUNS)]();
            best = std::max(best, done / seconds_since(begin) / 1e9);
        }
        sum += best;
    }
    return sum;
}

// --- threads --------------------------------------------------------------------------------------------------------

// What it costs at least to put all threads to work and to wait for them.
double empty_us(int threads, double budget_s) {
    double best_s = 1e30;
    std::atomic<int> ran{0};
    const auto start = Clock::now();
    while (seconds_since(start) < budget_s) {
        const auto begin = Clock::now();
#pragma omp parallel num_threads(threads)
        ran.fetch_add(1, std::memory_order_relaxed);
        best_s = std::min(best_s, seconds_since(begin));
    }
    return best_s * 1e6;
}

}  // namespace

int main(int argc, char** argv) {
    if (argc != 3) return 2;
    const int threads = std::atoi(argv[1]);
    const double budget_s = std::atof(argv[2]) / 1e3;
    if (threads < 1 || budget_s <= 0) return 2;
    std::printf("read_gb_s %.6g\n", moved_gb_s(READERS, threads, 0.4 * budget_s));
    std::printf("copy_gb_s %.6g\n", moved_gb_s(COPIERS, threads, 0.2 * budget_s));
    std::printf("fp32_gflop_s %.6g\n", gflop_s<float>(threads, 0.175 * budget_s));
    std::printf("fp64_gflop_s %.6g\n", gflop_s<double>(threads, 0.175 * budget_s));
    std::printf("empty_us %.6g\n", empty_us(threads, 0.05 * budget_s));
}
