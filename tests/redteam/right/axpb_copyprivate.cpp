/*! evo
[[launch]]
kernel = "axpb"
args = ["x", "b", "y", "alpha", "n"]
*/
/* redteam
operator = "axpb"
what = "what one thread knows is copied to all"
*/

extern "C" void axpb(const T* x, const T* b, T* y, T alpha, int n) {
#pragma omp parallel
    for (int part = 0; part < 4; part++) {
        T factor;
#pragma omp single copyprivate(factor)
        factor = alpha;
#pragma omp for nowait
        for (int i = part; i < n; i += 4) y[i] = factor * x[i] + b[i];
    }
}
