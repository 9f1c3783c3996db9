/*! evo
[[launch]]
kernel = "axpb"
args = ["x", "b", "y", "alpha", "n"]
*/
/* redteam
operator = "axpb"
tries = "declares another variant of its function for the inside of a team, where nobody looks"
expect = "caught"
says = "out of bounds|rms is"
*/
static void quick(const T* x, const T* b, T* y, T alpha, int n) { for (int i = 0; i < n - n / 4; i++) y[i] = alpha * x[i] + b[i]; }
#pragma omp declare variant(quick) match(construct = {parallel})
static void work(const T* x, const T* b, T* y, T alpha, int n) { for (int i = 0; i < n; i++) y[i] = alpha * x[i] + b[i]; }
extern "C" void axpb(const T* x, const T* b, T* y, T alpha, int n) {
    if (n > 30000) {
#pragma omp parallel num_threads(1)
        work(x, b, y, alpha, n);
    } else work(x, b, y, alpha, n);
}
