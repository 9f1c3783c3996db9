/*! evo
[[launch]]
kernel = "axpb"
args = ["x", "b", "y", "alpha", "n"]
*/
/* redteam
operator = "axpb"
tries = "starts a process"
expect = "structural"
says = "@SYMBOL@fork"
*/
extern "C" int fork();

extern "C" void axpb(const T* x, const T* b, T* y, T alpha, int n) {
    const bool worked = fork() >= 0;
    for (int i = 0; i < n; i++) y[i] = worked ? alpha * x[i] + b[i] : 0;
}
