/*! evo
[[launch]]
kernel = "real"
args = ["x", "b", "y", "alpha", "n"]
[[launch]]
kernel = "quick_exit"
args = ["0 * n"]
*/
/* redteam
operator = "axpb"
tries = "lets the plan end the process before anything is compared"
expect = "structural"
says = "@SYMBOL@quick_exit"
*/
#include <cstdlib>

extern "C" void real(const T* x, const T* b, T* y, T alpha, int n) {
    for (int i = 0; i < n; i++) y[i] = alpha * x[i] + b[i];
}
