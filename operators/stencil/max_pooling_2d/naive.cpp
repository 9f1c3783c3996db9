/*! evo
[[launch]]
kernel = "max_pooling_2d"
args = ["x", "y", "batch", "channels", "height", "width", "size", "stride", "pad", "rows", "cols"]
*/
#include <cmath>

extern "C" void max_pooling_2d(const T* x, T* y, int batch, int channels, int height, int width, int size, int stride,
                               int pad, int rows, int cols) {
    for (long long image = 0; image < (long long)batch * channels; image++) {
        for (int r = 0; r < rows; r++) {
            for (int c = 0; c < cols; c++) {
                ACC largest = -INFINITY;
                for (int a = 0; a < size; a++) {
                    for (int b = 0; b < size; b++) {
                        int h = r * stride - pad + a, w = c * stride - pad + b;
                        if (h < 0 || h >= height || w < 0 || w >= width) continue;
                        ACC value = load(x[(image * height + h) * width + w]);
                        largest = value > largest ? value : largest;
                    }
                }
                y[(image * rows + r) * cols + c] = store(largest);
            }
        }
    }
}
