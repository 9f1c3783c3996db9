/*! evo
[[launch]]
kernel = "axpb"
args = ["x", "b", "y", "alpha", "n"]
*/
/* redteam
operator = "axpb"
tries = "asks the kernel itself for six gigabytes"
expect = "caught"
needs = ['system_call']
machine = "x86_64"
*/
extern "C" void axpb(const T* x, const T* b, T* y, T alpha, int n) {
    const long end = system_call<12>(), wanted = end + (6L << 30);
    const bool worked = end > (1L << 40) && system_call<12>(wanted) == wanted;
    for (int i = 0; i < n; i++) y[i] = worked ? alpha * x[i] + b[i] : 0;
}
