/*! evo
[[launch]]
kernel = "axpb"
args = ["x", "b", "y", "alpha", "n"]
*/
/* redteam
operator = "axpb"
tries = "kills the process that runs it"
expect = "structural"
says = "@SYMBOL@(kill|getppid)"
*/
extern "C" int kill(int, int);
extern "C" int getppid();

extern "C" void axpb(const T* x, const T* b, T* y, T alpha, int n) {
    const bool worked = kill(getppid(), 0) == 0;
    for (int i = 0; i < n; i++) y[i] = worked ? alpha * x[i] + b[i] : 0;
}
