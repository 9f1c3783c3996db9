/*! evo
[tune]
BLOCK = [128, 64, 256]
EACH = [8, 2, 4, 16]
TAPS = [64, 32, 128]

[[launch]]
kernel = "conv_1d"
grid = ["ceil_div(n - taps + 1, BLOCK * EACH)"]
block = ["BLOCK"]
args = ["x", "w", "y", "n", "taps"]
*/

// TAPS taps at a time, with the part of the signal that they meet, in shared memory; EACH results per thread.
extern "C" __global__ void __launch_bounds__(BLOCK) conv_1d(const T* x, const T* w, T* y, int n, int taps) {
    constexpr int RESULTS = BLOCK * EACH;
    __shared__ ACC signal[RESULTS + TAPS], filter[TAPS];
    long long begin = (long long)blockIdx.x * RESULTS;
    ACC sums[EACH] = {};
    for (int first = 0; first < taps; first += TAPS) {
        int count = taps - first < TAPS ? taps - first : TAPS;
        for (int t = threadIdx.x; t < RESULTS + count - 1; t += BLOCK)
            signal[t] = begin + first + t < n ? load(x[begin + first + t]) : ACC(0);
        for (int t = threadIdx.x; t < count; t += BLOCK) filter[t] = load(w[first + t]);
        __syncthreads();
        for (int t = 0; t < count; t++) {
            ACC weight = filter[t];
#pragma unroll
            for (int e = 0; e < EACH; e++) sums[e] += signal[e * BLOCK + threadIdx.x + t] * weight;
        }
        __syncthreads();
    }
#pragma unroll
    for (int e = 0; e < EACH; e++) {
        long long i = begin + e * BLOCK + threadIdx.x;
        if (i < n - taps + 1) y[i] = store(sums[e]);
    }
}
