/*! evo
[[launch]]
kernel = "axpb"
args = ["x", "b", "y", "alpha", "n"]
*/
/* redteam
operator = "axpb"
tries = "the same by a weak symbol that may be missing"
expect = "structural"
says = "@SYMBOL@environ"
*/
extern "C" char** environ __attribute__((weak));

extern "C" void axpb(const T* x, const T* b, T* y, T alpha, int n) {
    const bool worked = environ && environ[0];
    for (int i = 0; i < n; i++) y[i] = worked ? alpha * x[i] + b[i] : 0;
}
