// The comparisons of fitness/cuda/oracle.py in one launch each: what torch needs forty small kernels for.

constexpr int THREADS = 256;
__device__ const double LARGEST = 1.7976931348623157e308;

__device__ double infinity() { return __longlong_as_double(0x7ff0000000000000); }

// The sums of a block, in its first thread.
template <class Sums> __device__ Sums reduced(Sums mine) {
    __shared__ Sums all[THREADS];
    all[threadIdx.x] = mine;
    for (int width = THREADS / 2; width; width /= 2) {
        __syncthreads();
        if (threadIdx.x < width) all[threadIdx.x].add(all[threadIdx.x + width]);
    }
    __syncthreads();
    return all[0];
}

// The sums of the grid: the last block to end has them in `result`. `parts` has room for what every block finds,
// `ticket` is 0 before and after, `none` are the sums of nothing.
template <class Sums>
__device__ void gather(Sums mine, const Sums& none, Sums* parts, unsigned* ticket, Sums* result) {
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
    Sums all = none;
    for (int block = threadIdx.x; block < gridDim.x; block += THREADS) all.add(parts[block]);
    all = reduced(all);
    if (threadIdx.x == 0) {
        *result = all;
        *ticket = 0;
    }
}

// --- how far outputs are from answers --------------------------------------------------------------------------------

// What one output element is off by, as a multiple of what is allowed.
struct Element {
    double ratio;
    bool negative;
};

template <class Y> __device__ double widened(Y y) { return static_cast<double>(y); }
// bf16 is the upper half of fp32.
template <> __device__ double widened(unsigned short y) { return static_cast<double>(__uint_as_float(y << 16)); }

__device__ Element examined(double value, double want, double bound) {
    const bool finite = fabs(want) <= LARGEST;
    double ratio;
    if (!finite) {
        ratio = value == want || (isnan(value) && isnan(want)) ? 0.0 : infinity();
    } else {
        const double error = fabs(value - want);
        if (error == 0 || bound == infinity())
            ratio = 0.0;
        else if (!(bound > 0) || !(error <= LARGEST))
            ratio = infinity();
        else
            ratio = error / fmax(bound, 2.2250738585072014e-308);
    }
    return {ratio, value < want};
}

struct Found {
    double largest, squares, bad, first, changes;

    __device__ void add(const Found& other) {
        largest = fmax(largest, other.largest);
        squares += other.squares;
        bad += other.bad;
        first = fmin(first, other.first);
        changes += other.changes;
    }
};

// `first` is `count` where nothing is bad.
template <class Y>
__global__ void judge(const Y* y, const double* want, const double* bound, long long count, Found* parts,
                      unsigned* ticket, Found* result) {
    const Found none = {0, 0, 0, static_cast<double>(count), 0};
    Found mine = none;
    for (long long i = blockIdx.x * (long long)THREADS + threadIdx.x; i < count; i += (long long)gridDim.x * THREADS) {
        const Element here = examined(widened(y[i]), want[i], bound[i]);
        const double finite = here.ratio == infinity() ? 0.0 : here.ratio;
        const bool wrong = here.ratio > 1;
        const bool changes = i + 1 < count && here.negative != (widened(y[i + 1]) < want[i + 1]);
        mine.add({here.ratio, finite * finite, double(wrong), wrong ? double(i) : double(count), double(changes)});
    }
    gather(mine, none, parts, ticket, result);
}

// --- how far they may be ---------------------------------------------------------------------------------------------

// The arguments of `fitness.oracle.bounds.bound`.
struct Limits {
    double rounding, growth, eta, y_limit, s_limit, usual_rounding, usual_growth;
};

struct Usual {
    double least_squares, squares;

    __device__ void add(const Usual& other) {
        least_squares += other.least_squares;
        squares += other.squares;
    }
};

__global__ void limit(const double* y, const double* s, double* allowed, Limits limits, long long count, Usual* parts,
                      unsigned* ticket, Usual* result) {
    Usual mine = {0, 0};
    for (long long i = blockIdx.x * (long long)THREADS + threadIdx.x; i < count; i += (long long)gridDim.x * THREADS) {
        const double size = fabs(y[i]), total = fabs(s[i]);
        if (!(size <= limits.y_limit && total <= limits.s_limit)) {
            allowed[i] = size <= LARGEST ? infinity() : 0.0;
            continue;
        }
        const double most = limits.rounding * size + limits.growth * total + limits.eta;
        allowed[i] = most;
        if (most == 0) continue;
        const double least = limits.usual_rounding * size / most;
        const double usual = (limits.usual_rounding * size + limits.usual_growth * total) / most;
        mine.add({least * least, usual * usual});
    }
    gather(mine, {0, 0}, parts, ticket, result);
}
