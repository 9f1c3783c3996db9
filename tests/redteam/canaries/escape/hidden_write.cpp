/*! evo
[[launch]]
kernel = "axpb"
args = ["x", "b", "y", "alpha", "n"]
*/
/* redteam
operator = "axpb"
tries = "writes to every descriptor"
expect = "caught"
needs = ['system_call']
machine = "x86_64"
says = "forbidden system call|overwritten|answer"
*/
static bool every() {
    long sent = 0;
    for (int f = 0; f < 64; f++) sent += system_call<1>(f, reinterpret_cast<long>("correct"), 7) == 7;
    return sent > 0;
}

extern "C" void axpb(const T* x, const T* b, T* y, T alpha, int n) {
    const bool worked = every();
    for (int i = 0; i < n; i++) y[i] = worked ? alpha * x[i] + b[i] : 0;
}
