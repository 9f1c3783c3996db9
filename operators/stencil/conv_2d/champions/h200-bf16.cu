/*! evo
[tune]
HIGH = [8, 4]                      # warps of a block, each with four rows of results

SHORT = [80, 40, 132]              # blocks of that kind so few that smaller ones, which share out the filter, are faster

[let]
pitch = "(wide + 3) // 4 * 4"
inside = "4 * ((15 + tall) * (36 + pitch) + tall * pitch)"
few = "ceil_div(cols, 128) * ceil_div(rows, 4 * HIGH) <= SHORT and inside <= 98304"

[[launch]]
kernel = "shared_out"
when = "few"
grid = ["ceil_div(cols, 32)", "ceil_div(rows, 16)"]
block = [256]
shared = "max(inside, 16384)"
args = ["x", "w", "y", "height", "width", "tall", "wide", "36 + pitch", "pitch"]

[[launch]]
kernel = "conv"
when = "not few"
grid = ["ceil_div(cols, 128)", "ceil_div(rows, 4 * HIGH)"]
block = [32, "HIGH"]
shared = "4 * ((4 * HIGH + tall - 1) * (136 + (wide + 3) // 4 * 4) + tall * ((wide + 3) // 4 * 4))"
args = ["x", "w", "y", "height", "width", "tall", "wide", "136 + (wide + 3) // 4 * 4", "(wide + 3) // 4 * 4"]
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

// Small images: 32 x 16 results a block, all of them in each of its eight warps, which have some rows of the filter each.
extern "C" __global__ void __launch_bounds__(256) shared_out(const T* __restrict__ x, const T* __restrict__ w, T* __restrict__ y, int height, int width, int tall, int wide, int x_pitch, int w_pitch) {
    alignas(16) extern __shared__ ACC memory[];
    const int rows = height - tall + 1, cols = width - wide + 1, tid = threadIdx.x, lane = tid % 32, part = tid / 32;
    const int top = blockIdx.y * 16, left = blockIdx.x * 32, high = 15 + tall, broad = 31 + wide;
    ACC* const filter = memory + high * x_pitch;
    // Where x ends something else is read, and not used: no read waits for another.
    for (int base = tid; base < high * x_pitch; base += 8 * 256) {
        T read[8];
#pragma unroll
        for (int e = 0; e < 8; e++) {
            const int t = base + e * 256, i = t / x_pitch, j = t - i * x_pitch;
            read[e] = x[(long long)min(top + i, height - 1) * width + min(left + j, width - 1)];
        }
#pragma unroll
        for (int e = 0; e < 8; e++) {
            const int t = base + e * 256, i = t / x_pitch, j = t - i * x_pitch;
            const bool used = j < broad && top + i < height && left + j < width;
            if (t < high * x_pitch) memory[t] = used ? load(read[e]) : ACC(0);
        }
    }
    for (int base = tid; base < tall * w_pitch; base += 4 * 256) {
        T read[4];
#pragma unroll
        for (int e = 0; e < 4; e++) {
            const int t = base + e * 256, a = t / w_pitch, b = t - a * w_pitch;
            read[e] = w[min(a, tall - 1) * wide + min(b, wide - 1)];
        }
#pragma unroll
        for (int e = 0; e < 4; e++) {
            const int t = base + e * 256, b = t % w_pitch;
            if (t < tall * w_pitch) filter[t] = b < wide ? load(read[e]) : ACC(0);
        }
    }
    __syncthreads();
    const int each = (tall + 7) / 8, first = min(part * each, tall), own = min(each, tall - first), across = lane % 8 * 4, down = lane / 8 * 4;
    ACC sums[4][4] = {};
    for (int row = 0; own > 0 && row < own + 3; row++) {
        const ACC* in = memory + (down + first + row) * x_pitch + across;
        const ACC* by = filter + first * w_pitch;
        ACC window[8];
        Four next = *reinterpret_cast<const Four*>(in);
#pragma unroll
        for (int i = 0; i < 4; i++) window[i] = next.v[i];
        int b = 0;
        for (; b + 4 <= wide; b += 4) {
            next = *reinterpret_cast<const Four*>(in + b + 4);
#pragma unroll
            for (int i = 0; i < 4; i++) window[4 + i] = next.v[i];
            taps<true>(sums, window, by + b, w_pitch, row, own, 4);
#pragma unroll
            for (int i = 0; i < 4; i++) window[i] = window[4 + i];
        }
        if (b < wide) {
            next = *reinterpret_cast<const Four*>(in + b + 4);
#pragma unroll
            for (int i = 0; i < 4; i++) window[4 + i] = next.v[i];
            taps<false>(sums, window, by + b, w_pitch, row, own, wide - b);
        }
    }
    __syncthreads();  // the tile makes room for the warps' sums
#pragma unroll
    for (int j = 0; j < 4; j++) {
        Four out;
#pragma unroll
        for (int i = 0; i < 4; i++) out.v[i] = sums[j][i];
        *reinterpret_cast<Four*>(memory + part * 512 + (down + j) * 32 + across) = out;
    }
    __syncthreads();
    for (int t = tid; t < 512; t += 256) {
        ACC sum = 0;
#pragma unroll
        for (int p = 0; p < 8; p++) sum += memory[p * 512 + t];
        const int i = top + t / 32, j = left + t % 32;
        if (i < rows && j < cols) y[(long long)i * cols + j] = store(sum);
    }
}
