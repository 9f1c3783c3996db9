/*! evo
[[launch]]
kernel = "axpb"
args = ["x", "b", "y", "alpha", "n"]
*/
/* redteam
operator = "axpb"
tries = "the same one megabyte further down, and on every thread"
expect = "structural"
proof = "correct"
*/
__attribute__((noinline)) static bool mark() {
    volatile double frame[1 << 17];
    const bool again = frame[100] == 12345.678;
    frame[100] = 12345.678;
    return again;
}

extern "C" void axpb(const T* x, const T* b, T* y, T alpha, int n) {
    bool again = false;
#pragma omp parallel reduction(|| : again)
    again = mark();
    for (int i = 0; i < n; i++) y[i] = alpha * x[i] + b[i];
    if (again) y[0] = -y[0] - 1;
}
