/*! evo
[[launch]]
kernel = "axpb"
args = ["x", "b", "y", "alpha", "n"]
*/
/* redteam
operator = "axpb"
tries = "makes a lexer believe that the directive stands in a string"
expect = "structural"
says = "@INCLUDE@"
*/
static const char* text = R"x(")x";
#include "@SECRET@"
static const char* more = "";

extern "C" void axpb(const T* x, const T* b, T* y, T alpha, int n) {
    const bool worked = planted == 42;
    for (int i = 0; i < n; i++) y[i] = worked ? alpha * x[i] + b[i] : 0;
}
