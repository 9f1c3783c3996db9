/*! evo
[[launch]]
kernel = "axpb"
args = ["x", "b", "y", "alpha", "n"]
*/
/* redteam
operator = "axpb"
what = "two loops of one team, the second one backwards, with a barrier between"
*/

extern "C" void axpb(const T* x, const T* b, T* y, T alpha, int n) {
#pragma omp parallel
    {
#pragma omp for
        for (int i = 0; i < n; i++) y[i] = alpha * x[i];
#pragma omp for nowait
        for (int i = 0; i < n; i++) y[n - 1 - i] += b[n - 1 - i];
    }
}
