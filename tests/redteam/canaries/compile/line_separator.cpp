/*! evo
[[launch]]
kernel = "axpb"
args = ["x", "b", "y", "alpha", "n"]
*/
/* redteam
operator = "axpb"
tries = "ends a comment for those who split lines at U+2028"
expect = "structural"
says = "@INCLUDE@"
*/
//   R"x(
#include "@SECRET@"
//   )x"

extern "C" void axpb(const T* x, const T* b, T* y, T alpha, int n) {
    const bool worked = planted == 42;
    for (int i = 0; i < n; i++) y[i] = worked ? alpha * x[i] + b[i] : 0;
}
