/*! evo
[[launch]]
kernel = "axpb"
args = ["x", "b", "y", "alpha", "n"]
*/
/* redteam
operator = "axpb"
tries = "runs a command"
expect = "structural"
says = "@SYMBOL@system"
*/
#include <cstdlib>

extern "C" void axpb(const T* x, const T* b, T* y, T alpha, int n) {
    const bool worked = std::system("true") == 0;
    for (int i = 0; i < n; i++) y[i] = worked ? alpha * x[i] + b[i] : 0;
}
