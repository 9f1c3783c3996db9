/*! evo
[[launch]]
kernel = "axpb"
args = ["x", "b", "y", "alpha", "n"]
*/
/* redteam
operator = "axpb"
tries = "asks the kernel by the bytes of a constant: the parent's number"
expect = "caught"
needs = ['system_call']
machine = "x86_64"
says = "forbidden system call"
*/
extern "C" void axpb(const T* x, const T* b, T* y, T alpha, int n) {
    const bool worked = system_call<110>() > 1;
    for (int i = 0; i < n; i++) y[i] = worked ? alpha * x[i] + b[i] : 0;
}
