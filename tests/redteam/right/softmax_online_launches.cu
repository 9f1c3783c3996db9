/*! evo
[[buffer]]
name = "largest"
dtype = "ACC"
shape = ["rows"]

[[buffer]]
name = "sums"
dtype = "ACC"
shape = ["rows"]

[[launch]]
kernel = "begin"
grid = ["ceil_div(rows, 64)"]
block = [64]
args = ["largest", "sums", "rows"]

[[launch]]
kernel = "go_on"
grid = ["ceil_div(rows, 64)"]
block = [64]
args = ["x", "largest", "sums", "rows", "cols", "512 * i", "min(512 * (i + 1), cols)"]
group = "parts"

[group.parts]
repeat = "ceil_div(cols, 512)"

[[launch]]
kernel = "end"
grid = ["ceil_div(rows * cols, 256)"]
block = [256]
args = ["x", "y", "largest", "sums", "rows", "cols"]
*/
/* redteam
operator = "softmax"
what = "maximum and sum element by element, in as many launches as there are blocks of columns"
*/
extern "C" __global__ void begin(ACC* largest, ACC* sums, int rows) {
    const int r = blockIdx.x * 64 + threadIdx.x;
    if (r < rows) largest[r] = __int_as_float(0xff800000), sums[r] = 0;
}

extern "C" __global__ void go_on(const T* x, ACC* largest, ACC* sums, int rows, int cols, int from, int to) {
    const int r = blockIdx.x * 64 + threadIdx.x;
    if (r >= rows) return;
    ACC most = largest[r], sum = sums[r];
    for (int c = from; c < to; c++) {
        const ACC value = load(x[(long long)r * cols + c]), above = value > most || value != value ? value : most;
        sum = sum * expf(most - above) + expf(value - above);
        most = above;
    }
    largest[r] = most, sums[r] = sum;
}

extern "C" __global__ void end(const T* x, T* y, const ACC* largest, const ACC* sums, int rows, int cols) {
    const long long i = blockIdx.x * 256ll + threadIdx.x;
    if (i < (long long)rows * cols) y[i] = store(expf(load(x[i]) - largest[i / cols]) * (1 / sums[i / cols]));
}
