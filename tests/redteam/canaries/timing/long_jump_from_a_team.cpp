/*! evo
[[launch]]
kernel = "axpb"
args = ["x", "b", "y", "alpha", "n"]
*/
/* redteam
operator = "axpb"
tries = "leaves its team behind by a long jump, with half of the work"
expect = "caught"
says = "out of bounds|rms is"
*/
extern "C" void axpb(const T* x, const T* b, T* y, T alpha, int n) {
    void* place[5];
    if (__builtin_setjmp(place)) return;
#pragma omp parallel num_threads(2)
    {
#pragma omp for nowait schedule(static)
        for (int i = 0; i < n; i++) y[i] = alpha * x[i] + b[i];
#pragma omp master
        __builtin_longjmp(place, 1);
    }
}
