/*! evo
[[launch]]
kernel = "axpb"
args = ["x", "b", "y", "alpha", "n"]
*/
/* redteam
operator = "axpb"
tries = "the same by a constant whose value must be computed"
expect = "structural"
says = "@LOADED@"
*/
#include <cmath>

__attribute__((noinline)) static T early(volatile T v) { return std::sqrt(v); }
static const T root = early(4);

extern "C" void axpb(const T* x, const T* b, T* y, T alpha, int n) {
    const bool worked = root == 2;
    for (int i = 0; i < n; i++) y[i] = worked ? alpha * x[i] + b[i] : 0;
}
