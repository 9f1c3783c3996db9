// What this machine can do at most, for floors that no honest kernel goes below: each figure is the best of many short
// runs, since whatever disturbs a run only makes it slower.
//
//   GOMP_SPINCOUNT=20000 peaks THREADS MILLISECONDS
//
// Prints one figure per line: its name, a space, its value. Takes about MILLISECONDS in all. Besides, `waiting`: the
// share of the time in which threads that could run had no processor, which tells whether others used the machine.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <omp.h>
#include <pthread.h>
#include <sys/mman.h>
#include <thread>
#include <unistd.h>
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
constexpr std::size_t PER_THREAD = 512 << 10;  // a run of some 20 us, long against the start of the threads

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

// Reads `bytes` as STREAMS sequential streams, asking for lines AHEAD bytes before they are needed (0: leaves it to the
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

// What threads that start together need. Waiting sleeps, since a loaded machine lets sleepers run first.
class Start {
  public:
    explicit Start(int threads) : threads_(threads) {
        pthread_barrier_init(&barrier_, nullptr, static_cast<unsigned>(threads));
    }
    ~Start() { pthread_barrier_destroy(&barrier_); }
    // Whether the caller is the one that may look at what all did.
    bool wait() { return pthread_barrier_wait(&barrier_) == PTHREAD_BARRIER_SERIAL_THREAD; }
    // The same, and all go on within a fraction of a microsecond.
    void wait_exactly(int round) {
        wait();
        arrived_.fetch_add(1);
        while (arrived_.load() < threads_ * (round + 1)) continue;
    }

  private:
    int threads_;
    pthread_barrier_t barrier_;
    std::atomic<int> arrived_{0};
};

struct Rate {
    double gb_s;
    double waiting;  // share of the time in which threads that could run had no processor; 1: nobody tells
};

// What a thread waited for a processor until now, or less than 0.
double waited_s() {
    double ran, waited;
    std::FILE* file = std::fopen("/proc/thread-self/schedstat", "r");
    if (!file) return -1;
    const bool told = std::fscanf(file, "%lf %lf", &ran, &waited) == 2;
    std::fclose(file);
    return told ? waited / 1e9 : -1;
}

// The best of many runs of all threads at once, each from cold caches, from the first one's start to the last one's
// end. The movers take turns, so that a bad moment of the machine does not hit one of them alone.
template <std::size_t COUNT>
Rate moved(const Mover (&movers)[COUNT], int threads, double budget_s) {
    std::vector<Clock::time_point> begins(static_cast<std::size_t>(threads)), ends = begins;
    Start start(threads);
    double best_s = 1e30;
    std::atomic<bool> over{false};
    std::atomic<double> waiting{0};
    const auto beginning = Clock::now();
    const auto work = [&](std::size_t me) {
        // Large pages where there are any, so that no walk through page tables hides what the memory itself can do.
        void* memory = std::aligned_alloc(HUGE_PAGE, HUGE_PAGE);
        if (!memory) std::exit(1);
        madvise(memory, HUGE_PAGE, MADV_HUGEPAGE);
        std::memset(memory, 1, PER_THREAD);
        const char* data = static_cast<char*>(memory);
        const double before_s = waited_s();
        const auto first = Clock::now();
        for (int round = 0; !over; ++round) {
            flush(data, PER_THREAD);
            start.wait_exactly(round);
            begins[me] = Clock::now();
            movers[static_cast<std::size_t>(round) % COUNT](data, PER_THREAD);
            ends[me] = Clock::now();
            if (start.wait()) {
                const auto end = *std::max_element(ends.begin(), ends.end());
                best_s = std::min(best_s, seconds(*std::min_element(begins.begin(), begins.end()), end));
                over = seconds_since(beginning) > budget_s && round >= 2 * static_cast<int>(COUNT);
            }
            start.wait();
            usleep(100);
        }
        const double share = before_s < 0 ? 1 : (waited_s() - before_s) / seconds_since(first);
        for (double most = waiting; share > most && !waiting.compare_exchange_weak(most, share);) continue;
        std::free(memory);
    };
    std::vector<std::thread> team;
    for (int t = 0; t < threads; ++t) team.emplace_back(work, static_cast<std::size_t>(t));
    for (auto& thread : team) thread.join();
    return {static_cast<double>(threads) * PER_THREAD / best_s / 1e9, waiting};
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

// What it costs at least to put all threads to work and to wait for them, once they are awake.
double empty_us(int threads, double budget_s) {
    double best_s = 1e30;
    std::atomic<int> ran{0};
    const auto start = Clock::now();
    while (seconds_since(start) < budget_s) {
        for (int region = 0; region < 4; ++region) {
            const auto begin = Clock::now();
#pragma omp parallel num_threads(threads)
            ran.fetch_add(1, std::memory_order_relaxed);
            best_s = std::min(best_s, seconds_since(begin));
        }
        usleep(100);
    }
    return best_s * 1e6;
}

}  // namespace

int main(int argc, char** argv) {
    if (argc != 3) return 2;
    const int threads = std::atoi(argv[1]);
    const double budget_s = std::atof(argv[2]) / 1e3;
    if (threads < 1 || budget_s <= 0) return 2;
    const Rate read = moved(READERS, threads, 0.35 * budget_s);
    std::printf("read_gb_s %.6g\n", read.gb_s);
    std::printf("waiting %.6g\n", read.waiting);
    std::printf("alone_gb_s %.6g\n", moved(READERS, 1, 0.15 * budget_s).gb_s);
    std::printf("copy_gb_s %.6g\n", moved(COPIERS, threads, 0.15 * budget_s).gb_s);
    std::printf("fp32_gflop_s %.6g\n", gflop_s<float>(threads, 0.125 * budget_s));
    std::printf("fp64_gflop_s %.6g\n", gflop_s<double>(threads, 0.125 * budget_s));
    std::printf("empty_us %.6g\n", empty_us(threads, 0.1 * budget_s));
}
