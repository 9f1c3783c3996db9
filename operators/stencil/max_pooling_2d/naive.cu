/*! evo
[tune]
BLOCK = [256, 64, 128, 512, 1024]

[[launch]]
kernel = "max_pooling_2d"
grid = ["ceil_div(batch * channels * rows * cols, BLOCK)"]
block = ["BLOCK"]
args = ["x", "y", "batch", "channels", "height", "width", "size", "stride", "pad", "rows", "cols"]
*/
#include <cmath>

// One thread per result.
extern "C" __global__ void max_pooling_2d(const T* x, T* y, int batch, int channels, int height, int width, int size,
                                          int stride, int pad, int rows, int cols) {
    long long at = (long long)blockIdx.x * blockDim.x + threadIdx.x, image = at / cols / rows;
    if (image >= (long long)batch * channels) return;
    int c = at % cols, r = at / cols % rows;
    ACC largest = -INFINITY;
    for (int a = 0; a < size; a++) {
        for (int b = 0; b < size; b++) {
            int h = r * stride - pad + a, w = c * stride - pad + b;
            if (h < 0 || h >= height || w < 0 || w >= width) continue;
            ACC value = load(x[(image * height + h) * width + w]);
            largest = value > largest ? value : largest;
        }
    }
    y[at] = store(largest);
}
