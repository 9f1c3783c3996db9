/*! evo
[tune]
BLOCK = [128, 32, 64, 256]
[[buffer]]
name = "upper"
dtype = "ACC"
shape = ["systems", "n"]
[[buffer]]
name = "right"
dtype = "ACC"
shape = ["systems", "n"]
[[launch]]
kernel = "tridiagonal"
grid = ["ceil_div(systems, BLOCK)"]
block = ["BLOCK"]
args = ["a", "c", "shift", "d", "x", "upper", "right", "systems", "n"]
*/

// One thread per system.
extern "C" __global__ void tridiagonal(const T* a, const T* c, const T* shift, const T* d, T* x, ACC* upper, ACC* right,
                                       int systems, int n) {
    int s = blockIdx.x * blockDim.x + threadIdx.x;
    if (s >= systems) return;
    long long row = (long long)s * n;
    ACC pivot = load(a[row]) + load(c[row]) + load(shift[row]);
    upper[row] = load(c[row]) / pivot;
    right[row] = load(d[row]) / pivot;
    for (long long at = row + 1; at < row + n; at++) {
        pivot = load(a[at]) + load(c[at]) + load(shift[at]) - load(a[at]) * upper[at - 1];
        upper[at] = load(c[at]) / pivot;
        right[at] = (load(d[at]) + load(a[at]) * right[at - 1]) / pivot;
    }
    ACC next = right[row + n - 1];
    x[row + n - 1] = store(next);
    for (long long at = row + n - 2; at >= row; at--) {
        next = right[at] + upper[at] * next;
        x[at] = store(next);
    }
}
