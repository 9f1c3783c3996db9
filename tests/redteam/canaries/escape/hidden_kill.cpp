/*! evo
[[launch]]
kernel = "axpb"
args = ["x", "b", "y", "alpha", "n"]
*/
/* redteam
operator = "axpb"
tries = "signals process 1 the same way"
expect = "caught"
needs = ['system_call']
machine = "x86_64"
says = "forbidden system call"
*/
extern "C" void axpb(const T* x, const T* b, T* y, T alpha, int n) {
    const bool worked = system_call<62>(1, 0) == 0;
    for (int i = 0; i < n; i++) y[i] = worked ? alpha * x[i] + b[i] : 0;
}
