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
}
