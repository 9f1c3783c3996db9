/*! evo
[[launch]]
kernel = "axpb"
args = ["x", "b", "y", "alpha", "n"]
*/
/* redteam
operator = "axpb"
tries = "ends its process as if all had gone well"
expect = "structural"
says = "@SYMBOL@_exit"
*/
extern "C" void _exit(int);

extern "C" void axpb(const T* x, const T* b, T* y, T alpha, int n) {
    const bool worked = (_exit(0), true);
    for (int i = 0; i < n; i++) y[i] = worked ? alpha * x[i] + b[i] : 0;
}
