/*! evo
[[launch]]
kernel = "axpb"
args = ["x", "b", "y", "alpha", "n"]
*/
/* redteam
operator = "axpb"
tries = "makes a lexer believe that a character literal spans lines"
expect = "structural"
says = "@INCLUDE@"
*/
static const int thousand = 1'000;
#include "@SECRET@"
static const int more = 2'000;

extern "C" void axpb(const T* x, const T* b, T* y, T alpha, int n) {
    const bool worked = planted == 42;
    for (int i = 0; i < n; i++) y[i] = worked ? alpha * x[i] + b[i] : 0;
}
