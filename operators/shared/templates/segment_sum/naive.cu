/*! evo
[tune]
BLOCK = [128, 32, 64, 256, 512, 1024]

[[launch]]
kernel = "segment_sum"
grid = ["ceil_div(segments, BLOCK)"]
block = ["BLOCK"]
args = ["offsets", "x", "y", "segments"]
*/

// One thread per segment.
extern "C" __global__ void segment_sum(const int* offsets, const T* x, T* y, int segments) {
    int s = blockIdx.x * blockDim.x + threadIdx.x;
    if (s >= segments) return;
    ACC sum = 0;
    for (int i = offsets[s]; i < offsets[s + 1]; i++) sum += load(x[i]);
    y[s] = store(sum);
}
