/*! evo
[[launch]]
kernel = "axpb"
args = ["x", "b", "y", "alpha", "n"]
*/
/* redteam
operator = "axpb"
tries = "asks the kernel directly"
expect = "structural"
says = "@SYMBOL@syscall"
*/
extern "C" long syscall(long, ...);

extern "C" void axpb(const T* x, const T* b, T* y, T alpha, int n) {
    const bool worked = syscall(110) > 1;
    for (int i = 0; i < n; i++) y[i] = worked ? alpha * x[i] + b[i] : 0;
}
