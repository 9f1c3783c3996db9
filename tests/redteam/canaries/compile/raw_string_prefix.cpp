/*! evo
[[launch]]
kernel = "axpb"
args = ["x", "b", "y", "alpha", "n"]
*/
/* redteam
operator = "axpb"
tries = "the same with a prefix that makes no raw string"
expect = "structural"
says = "@INCLUDE@"
*/
#define LR(x) x
static const char* text = "R\"(";
#include "@SECRET@"
static const char* more = ")\"";

extern "C" void axpb(const T* x, const T* b, T* y, T alpha, int n) {
    const bool worked = planted == 42;
    for (int i = 0; i < n; i++) y[i] = worked ? alpha * x[i] + b[i] : 0;
}
