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
    ACC above = 0, before = 0, next = 0; // beyond either end there is nothing
    for (int i = 0; i < n; i++) {
        ACC pivot = load(a[row + i]) + load(c[row + i]) + load(shift[row + i]) - load(a[row + i]) * above;
        above = load(c[row + i]) / pivot;
        before = (load(d[row + i]) + load(a[row + i]) * before) / pivot;
        upper[row + i] = above;
        right[row + i] = before;
    }
    for (int i = n - 1; i >= 0; i--) {
        next = right[row + i] + upper[row + i] * next;
        x[row + i] = store(next);
    }
}
