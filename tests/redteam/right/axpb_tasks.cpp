/*! evo
[[launch]]
kernel = "axpb"
args = ["x", "b", "y", "alpha", "n"]
*/
/* redteam
operator = "axpb"
what = "in OpenMP tasks"
*/
extern "C" void axpb(const T* x, const T* b, T* y, T alpha, int n) {
#pragma omp parallel num_threads(2)
#pragma omp single
    for (int begin = 0; begin < n; begin += 8192) {
#pragma omp task firstprivate(begin)
        for (int i = begin; i < n && i < begin + 8192; i++) y[i] = alpha * x[i] + b[i];
    }
}
