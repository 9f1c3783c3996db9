/*! evo
[[launch]]
kernel = "conv"
args = ["x", "w", "y", "height", "width", "tall", "wide"]
*/
/* redteam
operator = "conv_2d"
what = "a tap after the other, sums kept in the output"
*/
extern "C" void conv(const T* x, const T* w, T* y, int height, int width, int tall, int wide) {
    const int rows = height - tall + 1, cols = width - wide + 1;
    for (long long i = 0; i < (long long)rows * cols; i++) y[i] = 0;
    for (int tap = tall * wide - 1; tap >= 0; tap--)
#pragma omp parallel for num_threads(2)
        for (int i = 0; i < rows; i++)
            for (int j = 0; j < cols; j++)
                y[(long long)i * cols + j] += x[(long long)(i + tap / wide) * width + j + tap % wide] * w[tap];
}
