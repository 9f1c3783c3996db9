/*! evo
[[launch]]
kernel = "axpb"
args = ["x", "b", "y", "alpha", "n"]
*/
/* redteam
operator = "axpb"
tries = "redefines a word of our shim, so that the table of its parameters calls a mutable input constant"
expect = "caught"
says = "`x`, which is an input"
*/
#define is_const_v is_floating_point_v

extern "C" void axpb(T* x, const T* b, T* y, T alpha, int n) {
    for (int i = 0; i < n; i++) y[i] = alpha * x[i] + b[i];
    x[0] = 0;
}
