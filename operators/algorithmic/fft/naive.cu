/*! evo
[tune]
BLOCK = [256, 64, 128, 512, 1024]

[[buffer]]
name = "re"
dtype = "ACC"
shape = ["n"]

[[buffer]]
name = "im"
dtype = "ACC"
shape = ["n"]

[[launch]]
kernel = "reorder"
grid = ["ceil_div(n, BLOCK)"]
block = ["BLOCK"]
args = ["x_re", "x_im", "re", "im", "n", "ceil_log2(n)"]

[[launch]]
kernel = "butterflies"
grid = ["ceil_div(n, 2 * BLOCK)"]
block = ["BLOCK"]
args = ["re", "im", "2 ** i", "n"]
group = "stage"

[[launch]]
kernel = "finish"
grid = ["ceil_div(n, BLOCK)"]
block = ["BLOCK"]
args = ["re", "im", "y_re", "y_im", "n"]

[group.stage]
repeat = "ceil_log2(n)"
*/

// Radix 2, decimation in time: bits of the indices reversed, then a launch per stage with one thread per butterfly.
extern "C" __global__ void reorder(const T* x_re, const T* x_im, ACC* re, ACC* im, int n, int stages) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    int from = 0;
    for (int bit = 0; bit < stages; bit++) from |= (i >> bit & 1) << (stages - 1 - bit);
    re[i] = load(x_re[from]);
    im[i] = load(x_im[from]);
}

extern "C" __global__ void butterflies(ACC* re, ACC* im, int half, int n) {
    int t = blockIdx.x * blockDim.x + threadIdx.x;
    if (t >= n / 2) return;
    int k = t % half, low = t / half * 2 * half + k, high = low + half;
    ACC turn = -ACC(k) / half, cosine = cospif(turn), sine = sinpif(turn);
    ACC turned_re = re[high] * cosine - im[high] * sine, turned_im = re[high] * sine + im[high] * cosine;
    re[high] = re[low] - turned_re, im[high] = im[low] - turned_im;
    re[low] += turned_re, im[low] += turned_im;
}

extern "C" __global__ void finish(const ACC* re, const ACC* im, T* y_re, T* y_im, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    y_re[i] = store(re[i]);
    y_im[i] = store(im[i]);
}
