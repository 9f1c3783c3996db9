/*! evo
[[launch]]
kernel = "conv_2d"
grid = ["ceil_div(width - wide + 1, 32)", "height - tall + 1"]
block = [32]
args = ["x", "w", "y", "height", "width", "tall", "wide"]
*/
/* redteam
operator = "conv_2d"
what = "from the last tap to the first, even and odd ones in sums of their own"
*/
extern "C" __global__ void conv_2d(const T* x, const T* w, T* y, int height, int width, int tall, int wide) {
    const int i = blockIdx.y, j = blockIdx.x * 32 + threadIdx.x;
    if (j >= width - wide + 1) return;
    ACC sums[2] = {};
    for (int tap = tall * wide - 1; tap >= 0; tap--)
        sums[tap & 1] += load(x[(long long)(i + tap / wide) * width + j + tap % wide]) * load(w[tap]);
    y[(long long)i * (width - wide + 1) + j] = store(sums[1] + sums[0]);
}
