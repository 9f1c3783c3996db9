/*! evo
[[buffer]]
name = "kept"
dtype = "fp64"
shape = [8]
[[launch]]
kernel = "axpb"
args = ["x", "b", "y", "kept", "alpha", "n"]
*/
/* redteam
operator = "axpb"
tries = "starts a team of threads and returns without waiting for it"
expect = "structural"
says = "@SYMBOL@GOMP_parallel_start"
*/
extern "C" void GOMP_parallel_start(void (*)(void*), void*, unsigned);

struct Work {
    const T *x, *b;
    T* y;
    T alpha;
    int n;
};

static void compute(void* data) {
    const Work w = *static_cast<Work*>(data);
    for (volatile int wait = 0; wait < 3000000;) wait = wait + 1;
    for (int i = 0; i < w.n; i++) w.y[i] = w.alpha * w.x[i] + w.b[i];
}

extern "C" void axpb(const T* x, const T* b, T* y, double* kept, T alpha, int n) {
    Work* work = reinterpret_cast<Work*>(kept);
    *work = {x, b, y, alpha, n};
    GOMP_parallel_start(compute, work, 2);
}
