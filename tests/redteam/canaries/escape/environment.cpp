/*! evo
[[launch]]
kernel = "axpb"
args = ["x", "b", "y", "alpha", "n"]
*/
/* redteam
operator = "axpb"
tries = "reads a variable of the environment"
expect = "structural"
says = "@SYMBOL@getenv"
*/
#include <cstdlib>

extern "C" void axpb(const T* x, const T* b, T* y, T alpha, int n) {
    const bool worked = std::getenv("PATH") != nullptr;
    for (int i = 0; i < n; i++) y[i] = worked ? alpha * x[i] + b[i] : 0;
}
