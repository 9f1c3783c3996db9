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
finding = "a call may take up to 16 GiB, whatever the machine has"
*/
extern "C" void axpb(const T* x, const T* b, T* y, T alpha, int n) {
    const bool worked = system_call<12>(system_call<12>() + (6L << 30)) > system_call<12>() - 4096 && system_call<12>() > (1L << 40);
    for (int i = 0; i < n; i++) y[i] = worked ? alpha * x[i] + b[i] : 0;
}
