/*! evo
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
args = ["a", "c", "shift", "d", "x", "upper", "right", "systems", "n"]
*/

// Plain and right: every search begins here, and all others are compared with it.
extern "C" void tridiagonal(const T* a, const T* c, const T* shift, const T* d, T* x, ACC* upper, ACC* right,
                            int systems, int n) {
    for (int s = 0; s < systems; s++) {
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
}
