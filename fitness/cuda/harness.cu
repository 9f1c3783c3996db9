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

// Fills shared memory, and some local memory, of every multiprocessor: what a candidate finds there tells nothing.
extern "C" __global__ void scribble(unsigned value, int words, unsigned* sink) {
    extern __shared__ unsigned shared[];
    volatile unsigned local[64];
    for (int i = 0; i < 64; i++) local[i] = value;
    for (int i = threadIdx.x; i < words; i += blockDim.x) shared[i] = value;
    __syncthreads();
    if (shared[threadIdx.x % words] + local[threadIdx.x % 64] == 1) *sink = value;
}

__device__ __forceinline__ unsigned long long nanoseconds() {
    unsigned long long now;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
    return now;
}

// Holds the stream until everything behind it has been handed in. It keeps telling the device's time, so that whoever
// lets it go knows when that was; it says 0 where nobody did so in time.
extern "C" __global__ void hold(
    const volatile unsigned* flag, unsigned ticket, unsigned long long most_ns, volatile unsigned long long* clock) {
    const unsigned long long begin = nanoseconds();
    unsigned long long now = begin;
    do {
        *clock = now = nanoseconds();
    } while (*flag != ticket && now - begin < most_ns);
    if (*flag != ticket) *clock = 0;
}

// The device's time behind a candidate, which has ended then and can write no more.
extern "C" __global__ void stamp(unsigned long long* where) { *where = nanoseconds(); }
