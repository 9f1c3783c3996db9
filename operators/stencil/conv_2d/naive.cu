/*! evo
[tune]
BLOCK_X = [16, 8, 32, 64]
BLOCK_Y = [16, 2, 4, 8]

[[launch]]
kernel = "conv_2d"
grid = ["ceil_div(width - wide + 1, BLOCK_X)", "ceil_div(height - tall + 1, BLOCK_Y)"]
block = ["BLOCK_X", "BLOCK_Y"]
args = ["x", "w", "y", "height", "width", "tall", "wide"]
*/

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
