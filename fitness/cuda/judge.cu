// The comparison of fitness/cuda/oracle.py in one launch: what torch needs forty small kernels for.

// What one output element is off by, as a multiple of what is allowed.
struct Element {
    double ratio;
    bool negative;
};

template <class Y> __device__ double widened(Y y) { return static_cast<double>(y); }
// bf16 is the upper half of fp32.
template <> __device__ double widened(unsigned short y) { return static_cast<double>(__uint_as_float(y << 16)); }

__device__ Element examined(double value, double want, double bound) {
    const double infinite = __longlong_as_double(0x7ff0000000000000), largest = 1.7976931348623157e308;
    const bool finite = fabs(want) <= largest;
    double ratio;
    if (!finite) {
        ratio = value == want || (isnan(value) && isnan(want)) ? 0.0 : infinite;
    } else {
        const double error = fabs(value - want);
        if (error == 0 || bound == infinite)
            ratio = 0.0;
        else if (!(bound > 0) || !(error <= largest))
            ratio = infinite;
        else
            ratio = error / fmax(bound, 2.2250738585072014e-308);
    }
    return {ratio, value < want};
}

struct Sums {
    double largest, squares, bad, first, changes;

    __device__ void add(const Sums& other) {
        largest = fmax(largest, other.largest);
        squares += other.squares;
        bad += other.bad;
        first = fmin(first, other.first);
        changes += other.changes;
    }
};

constexpr int THREADS = 256;

// The sums of a block, in its first thread.
__device__ Sums reduced(Sums mine) {
    __shared__ Sums all[THREADS];
    all[threadIdx.x] = mine;
    for (int width = THREADS / 2; width; width /= 2) {
        __syncthreads();
        if (threadIdx.x < width) all[threadIdx.x].add(all[threadIdx.x + width]);
    }
    __syncthreads();
    return all[0];
}

// `parts` has room for what every block finds, `ticket` is 0 before and after; `first` is `count` where nothing is bad.
template <class Y>
__global__ void judge(
    const Y* y, const double* want, const double* bound, long long count, Sums* parts, unsigned* ticket, Sums* result) {
    const double infinite = __longlong_as_double(0x7ff0000000000000);
    Sums mine = {0, 0, 0, static_cast<double>(count), 0};
    for (long long i = blockIdx.x * (long long)THREADS + threadIdx.x; i < count; i += (long long)gridDim.x * THREADS) {
        const Element here = examined(widened(y[i]), want[i], bound[i]);
        const double finite = here.ratio == infinite ? 0.0 : here.ratio;
        const bool wrong = here.ratio > 1;
        const bool changes = i + 1 < count && here.negative != (widened(y[i + 1]) < want[i + 1]);
        mine.add({here.ratio, finite * finite, double(wrong), wrong ? double(i) : double(count), double(changes)});
    }
    mine = reduced(mine);
    __shared__ bool last;
    if (threadIdx.x == 0) {
        parts[blockIdx.x] = mine;
        __threadfence();
        last = atomicAdd(ticket, 1) == gridDim.x - 1;
    }
    __syncthreads();
    if (!last) return;
    __threadfence();
    Sums all = {0, 0, 0, static_cast<double>(count), 0};
    for (int block = threadIdx.x; block < gridDim.x; block += THREADS) all.add(parts[block]);
    all = reduced(all);
    if (threadIdx.x == 0) {
        *result = all;
        *ticket = 0;
    }
}
