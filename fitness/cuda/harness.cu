// What the runner runs around a candidate: nothing here knows of operators or of right answers.

// Leaves nothing of what was there in L2: written, then read, so that nobody else pays for writing it back.
extern "C" __global__ void flush_write(float4* memory, long long count, float value) {
    for (long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; i < count; i += (long long)gridDim.x * blockDim.x)
        memory[i] = make_float4(value, value, value, value);
}
extern "C" __global__ void flush_read(const float4* memory, long long count, float* sink) {
    float sum = 0;
    for (long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; i < count; i += (long long)gridDim.x * blockDim.x) {
        const float4 v = __ldcg(memory + i);
        sum += v.x + v.y + v.z + v.w;
    }
    if (sum == 1.25f) *sink = sum;
}

// Fills shared memory, what the system reserves of it for itself included, and registers of every multiprocessor: what
// a candidate finds there tells nothing. One block takes a multiprocessor: `words` are all that it has.
constexpr int REGISTERS = 55;
extern "C" __global__ void __launch_bounds__(1024, 1) scribble(unsigned value, int words) {
    for (int i = threadIdx.x; i < words; i += blockDim.x)
        asm volatile("st.shared.u32 [%0], %1;" ::"r"(4 * i), "r"(value) : "memory");
    __syncthreads();
    unsigned held[REGISTERS];
#pragma unroll
    for (int i = 0; i < REGISTERS; i++)
        asm volatile("ld.volatile.shared.u32 %0, [%1];" : "=r"(held[i]) : "r"(4 * (threadIdx.x + i)) : "memory");
    __syncthreads();  // all are held at the same time
#pragma unroll
    for (int i = 0; i < REGISTERS; i++)
        asm volatile("st.volatile.shared.u32 [%0], %1;" ::"r"(4 * (threadIdx.x + i)), "r"(held[i]) : "memory");
}

__device__ __forceinline__ unsigned long long nanoseconds() {
    unsigned long long now;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
    return now;
}

// Fills local memory of every thread that the device can hold: all blocks wait until all are there, so that each takes
// places of its own. Places of threads with less local memory lie within those of threads with more.
template <int BYTES> __device__ __forceinline__ void fill_local(unsigned value, unsigned* arrived, unsigned expected) {
    unsigned local[BYTES / 4];
    unsigned long long address;
    asm volatile("cvta.to.local.u64 %0, %1;" : "=l"(address) : "l"(local) : "memory");
    if (threadIdx.x == 0) {
        atomicAdd(arrived, 1);
        const unsigned long long begin = nanoseconds();
        while (static_cast<int>(*(volatile unsigned*)arrived - expected) < 0 && nanoseconds() - begin < 100000) {}
    }
    __syncthreads();
    for (int i = 0; i < BYTES; i += 4)
        asm volatile("st.local.u32 [%0], %1;" ::"l"(address + i), "r"(value) : "memory");
}
#define LOCAL(BYTES)                                                                                                   \
    extern "C" __global__ void __launch_bounds__(1024, 2)                                                              \
        scribble_local_##BYTES(unsigned value, unsigned* arrived, unsigned expected) {                                 \
        fill_local<BYTES>(value, arrived, expected);                                                                   \
    }
LOCAL(2048)
LOCAL(4096)
LOCAL(8192)
LOCAL(17408)

// Holds the stream until everything behind it has been handed in, and tells that it does. Who lets it go is told at once
// when that will be: a while later, by the device's time, so that it can be read before anything of a candidate's runs,
// and so that how far away the host's memory lies delays nothing behind it. Nobody is told who lets it go too late.
extern "C" __global__ void hold(const volatile unsigned* flag, volatile unsigned* holds, unsigned ticket,
                                unsigned long long most_ns, unsigned long long notice_ns,
                                volatile unsigned long long* clock) {
    const unsigned long long begin = nanoseconds();
    *holds = ticket;
    while (*flag != ticket)
        if (nanoseconds() - begin >= most_ns) return;
    const unsigned long long end = nanoseconds() + notice_ns;
    *clock = end;
    __threadfence_system();
    while (nanoseconds() < end) {}
}

// The device's time behind a candidate, which has ended then and can write no more.
extern "C" __global__ void stamp(unsigned long long* where) { *where = nanoseconds(); }

// The driver keeps the barrier words of cooperative launches in memory of its own, whose address every kernel can read.
extern "C" __global__ void find_barriers(unsigned long long* where) {
    unsigned low, high;
    asm volatile("mov.u32 %0, %%envreg2; mov.u32 %1, %%envreg1;" : "=r"(low), "=r"(high));
    *where = (unsigned long long)high << 32 | low;
}
extern "C" __global__ void copy_words(const volatile unsigned* from, unsigned* to, int count) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) to[i] = from[i];
}
// Tells a word that a candidate changed there, if there is one. A barrier turns the highest bit of its word, the second
// of 16, and leaves the count of blocks below it as it was.
extern "C" __global__ void find_change(const volatile unsigned* now, const unsigned* before, int count,
                                       volatile unsigned* changed) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) {
        const unsigned difference = now[i] ^ before[i];
        if (difference && !(i % 16 == 1 && difference == 0x80000000u)) *changed = i;
    }
}
