/*! evo
[[buffer]]
name = "even"
dtype = "ACC"
shape = [2, "n"]

[[buffer]]
name = "odd"
dtype = "ACC"
shape = [2, "n"]

[[launch]]
kernel = "begin"
grid = ["ceil_div(n, 128)"]
block = [128]
args = ["x_re", "x_im", "even", "n"]

[[launch]]
kernel = "butterflies"
group = "passes"
grid = ["ceil_div(n, 256)"]
block = [128]
args = ["even if i % 2 == 0 else odd", "odd if i % 2 == 0 else even", "2 ** i", "n"]

[group.passes]
repeat = "ceil_log2(n)"

[[launch]]
kernel = "end"
grid = ["ceil_div(n, 128)"]
block = [128]
args = ["even if ceil_log2(n) % 2 == 0 else odd", "y_re", "y_im", "n"]
*/
/* redteam
operator = "fft"
what = "Stockham's, which sorts itself from buffer to buffer"
*/
extern "C" __global__ void begin(const T* re, const T* im, ACC* to, int n) {
    const int i = blockIdx.x * 128 + threadIdx.x;
    if (i < n) to[i] = load(re[i]), to[n + i] = load(im[i]);
}
extern "C" __global__ void butterflies(const ACC* from, ACC* to, int half, int n) {
    const int t = blockIdx.x * 128 + threadIdx.x, k = t & (half - 1);
    if (t >= n / 2) return;
    ACC sine, cosine;
    sincospif(-ACC(k) / half, &sine, &cosine);
    const ACC re = from[t + n / 2], im = from[n + t + n / 2];
    const ACC turned_re = re * cosine - im * sine, turned_im = re * sine + im * cosine;
    const int at = 2 * t - k;
    to[at] = from[t] + turned_re, to[n + at] = from[n + t] + turned_im;
    to[at + half] = from[t] - turned_re, to[n + at + half] = from[n + t] - turned_im;
}
extern "C" __global__ void end(const ACC* from, T* re, T* im, int n) {
    const int i = blockIdx.x * 128 + threadIdx.x;
    if (i < n) re[i] = store(from[i]), im[i] = store(from[n + i]);
}
