/*! evo
[[launch]]
kernel = "axpb"
args = ["x", "b", "y", "alpha", "n"]
*/
/* redteam
operator = "axpb"
tries = "asks for eight gigabytes of shared memory, which no limit of private memory counts"
expect = "caught"
says = "forbidden system call"
needs = ['any_call']
machine = "x86_64"
*/
extern "C" void axpb(const T* x, const T* b, T* y, T alpha, int n) {
    const long bytes = 8L << 30, place = any_call(9, 0, bytes, 3, 0x21, -1, 0);
    const bool worked = place > 4096;
    for (int i = 0; i < n; i++) y[i] = worked ? alpha * x[i] + b[i] : 0;
}
