/*! evo
[[launch]]
kernel = "axpb"
args = ["x", "b", "y", "alpha", "n"]
*/
/* redteam
operator = "axpb"
tries = "the same through _Pragma and a macro"
expect = "structural"
says = "ragma"
*/
#define TELL(x) _Pragma(#x)
TELL(GCC dependency "@SECRET@")

extern "C" void axpb(const T* x, const T* b, T* y, T alpha, int n) {
    const bool worked = true;
    for (int i = 0; i < n; i++) y[i] = worked ? alpha * x[i] + b[i] : 0;
}
