/*! evo
[[buffer]]
name = "upper"
dtype = "ACC"
shape = ["systems", "n"]
[[launch]]
kernel = "tridiagonal"
args = ["a", "b", "c", "d", "x", "upper", "systems", "n"]
*/

extern "C" void tridiagonal(const T* a, const T* b, const T* c, const T* d, T* x, ACC* upper, int systems, int n) {
#pragma omp parallel for
    for (int s = 0; s < systems; s++) {
        long long at = (long long)s * n;
        ACC above = 0, right = 0;
        for (int i = 0; i < n; i++) {
            ACC pivot = load(b[at + i]) - (i ? load(a[at + i]) * above : 0);
            above = upper[at + i] = load(c[at + i]) / pivot;
            right = (load(d[at + i]) - (i ? load(a[at + i]) * right : 0)) / pivot;
            x[at + i] = store(right);
        }
        for (int i = n - 2; i >= 0; i--) x[at + i] = store(load(x[at + i]) - upper[at + i] * load(x[at + i + 1]));
    }
}
