/*! evo
[tune]
HIGH = [8, 4]                      # warps of a block, each with four rows of results
BLOCK_X = [16, 8, 32, 64]
BLOCK_Y = [16, 2, 4, 8]

[[launch]]
when = "height * width > 262143"
kernel = "conv"
grid = ["ceil_div(cols, 128)", "ceil_div(rows, 4 * HIGH)"]
block = [32, "HIGH"]
shared = "4 * ((4 * HIGH + tall - 1) * (136 + (wide + 3) // 4 * 4) + tall * ((wide + 3) // 4 * 4))"
args = ["x", "w", "y", "height", "width", "tall", "wide", "136 + (wide + 3) // 4 * 4", "(wide + 3) // 4 * 4"]
[[launch]]
when = "height * width <= 262143"
kernel = "conv_2d"
grid = ["ceil_div(width - wide + 1, BLOCK_X)", "ceil_div(height - tall + 1, BLOCK_Y)"]
block = ["BLOCK_X", "BLOCK_Y"]
args = ["x", "w", "y", "height", "width", "tall", "wide"]
*/
// A tile of x and the whole filter in shared memory; a thread has 4 x 4 results in registers. Four taps of four rows take
// one load of x that is shared by all rows, and four of the filter that are shared by all lanes.
struct alignas(16) Four { ACC v[4]; };

template <bool WHOLE> __device__ __forceinline__ void taps(ACC (&sums)[4][4], const ACC (&window)[8], const ACC* filter, int pitch, int row, int tall, int left) {
#pragma unroll
    for (int j = 0; j < 4; j++) {
        const int a = row - j;  // the row of the filter that meets this row of x in the j-th row of results
        if (a < 0 || a >= tall) continue;
        const Four w = *reinterpret_cast<const Four*>(filter + a * pitch);
#pragma unroll
        for (int t = 0; t < 4; t++)
            if (WHOLE || t < left)
#pragma unroll
                for (int i = 0; i < 4; i++) sums[j][i] += window[i + t] * w.v[t];
    }
}

extern "C" __global__ void __launch_bounds__(32 * HIGH) conv(const T* __restrict__ x, const T* __restrict__ w, T* __restrict__ y, int height, int width, int tall, int wide, int x_pitch, int w_pitch) {
    alignas(16) extern __shared__ ACC memory[];
    const int rows = height - tall + 1, cols = width - wide + 1, thread = threadIdx.y * 32 + threadIdx.x;
    const int top = blockIdx.y * 4 * HIGH, left = blockIdx.x * 128, high = 4 * HIGH + tall - 1, broad = 128 + wide - 1;
    ACC* const filter = memory + high * x_pitch;
    for (int i = threadIdx.y; i < high; i += HIGH) {
        const T* from = x + (long long)(top + i) * width + left;
        for (int j = threadIdx.x; j < broad; j += 32) memory[i * x_pitch + j] = top + i < height && left + j < width ? load(from[j]) : ACC(0);
        for (int j = broad + threadIdx.x; j < x_pitch; j += 32) memory[i * x_pitch + j] = 0;
    }
    for (int t = thread; t < tall * w_pitch; t += 32 * HIGH) {
        const int a = t / w_pitch, b = t % w_pitch;
        filter[t] = b < wide ? load(w[a * wide + b]) : ACC(0);
    }
    __syncthreads();
    ACC sums[4][4] = {};
    for (int row = 0; row < tall + 3; row++) {
        const ACC* in = memory + (threadIdx.y * 4 + row) * x_pitch + threadIdx.x * 4;
        ACC window[8];
        Four next = *reinterpret_cast<const Four*>(in);
#pragma unroll
        for (int i = 0; i < 4; i++) window[i] = next.v[i];
        int b = 0;
        for (; b + 4 <= wide; b += 4) {
            next = *reinterpret_cast<const Four*>(in + b + 4);
#pragma unroll
            for (int i = 0; i < 4; i++) window[4 + i] = next.v[i];
            taps<true>(sums, window, filter + b, w_pitch, row, tall, 4);
#pragma unroll
            for (int i = 0; i < 4; i++) window[i] = window[4 + i];
        }
        if (b < wide) {
            next = *reinterpret_cast<const Four*>(in + b + 4);
#pragma unroll
            for (int i = 0; i < 4; i++) window[4 + i] = next.v[i];
            taps<false>(sums, window, filter + b, w_pitch, row, tall, wide - b);
        }
    }
    __syncthreads();  // the tile makes room for the results, which leave in the order of memory
#pragma unroll
    for (int j = 0; j < 4; j++) {
        Four out;
#pragma unroll
        for (int i = 0; i < 4; i++) out.v[i] = sums[j][i];
        *reinterpret_cast<Four*>(memory + (threadIdx.y * 4 + j) * x_pitch + threadIdx.x * 4) = out;
    }
    __syncthreads();
    for (int j = threadIdx.y; j < 4 * HIGH && top + j < rows; j += HIGH)
        for (int i = threadIdx.x; i < 128 && left + i < cols; i += 32)
            y[(long long)(top + j) * cols + left + i] = store(memory[j * x_pitch + i]);
}

// One thread per result.
extern "C" __global__ void conv_2d(const T* x, const T* w, T* y, int height, int width, int tall, int wide) {
    int i = blockIdx.y * blockDim.y + threadIdx.y;
    int j = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= height - tall + 1 || j >= width - wide + 1) return;
    ACC sum = 0;
    for (int a = 0; a < tall; a++)
        for (int b = 0; b < wide; b++) sum += load(x[(long long)(i + a) * width + j + b]) * load(w[a * wide + b]);
    y[(long long)i * (width - wide + 1) + j] = store(sum);
}
