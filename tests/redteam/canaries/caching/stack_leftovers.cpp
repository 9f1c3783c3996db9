/*! evo
[[launch]]
kernel = "axpb"
args = ["x", "b", "y", "alpha", "n"]
*/
/* redteam
operator = "axpb"
tries = "looks for its mark where the last call's stack frame was"
expect = "structural"
proof = "correct"
*/
__attribute__((noinline)) static bool mark(int n) {
    volatile double frame[512];
    const bool again = frame[100] == 12345.678;
    for (int i = 0; i < 512; i++) frame[i] = 12345.678;
    return again && n > 0;
}

extern "C" void axpb(const T* x, const T* b, T* y, T alpha, int n) {
    const bool again = mark(n);
    for (int i = 0; i < n; i++) y[i] = alpha * x[i] + b[i];
    if (again) y[0] = -y[0] - 1;
}
