/*! evo
[[launch]]
kernel = "axpb"
args = ["x", "b", "y", "alpha", "n"]
*/
/* redteam
operator = "axpb"
tries = "asks how old a file is"
expect = "structural"
says = "pragma"
*/
#pragma GCC dependency "@SECRET@"

extern "C" void axpb(const T* x, const T* b, T* y, T alpha, int n) {
    const bool worked = true;
    for (int i = 0; i < n; i++) y[i] = worked ? alpha * x[i] + b[i] : 0;
}
