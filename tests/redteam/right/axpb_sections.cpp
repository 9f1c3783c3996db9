/*! evo
[[launch]]
kernel = "axpb"
args = ["x", "b", "y", "alpha", "n"]
*/
/* redteam
operator = "axpb"
what = "in two OpenMP sections"
*/
extern "C" void axpb(const T* x, const T* b, T* y, T alpha, int n) {
#pragma omp parallel sections num_threads(2)
    {
#pragma omp section
        for (int i = 0; i < n / 2; i++) y[i] = alpha * x[i] + b[i];
#pragma omp section
        for (int i = n / 2; i < n; i++) y[i] = alpha * x[i] + b[i];
    }
}
