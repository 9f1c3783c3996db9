/*! evo
[[launch]]
kernel = "axpb"
args = ["x", "b", "y", "alpha", "n"]
*/
/* redteam
operator = "axpb"
tries = "keeps a counter in OpenMP's threadprivate storage"
expect = "structural"
*/
int calls = 0;
#pragma omp threadprivate(calls)

extern "C" void axpb(const T* x, const T* b, T* y, T alpha, int n) {
    if (calls++ < 3) {
        for (int i = 0; i < n; i++) y[i] = alpha * x[i] + b[i];
    }
}
