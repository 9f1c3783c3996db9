/*! evo
[[launch]]
kernel = "axpb"
args = ["x", "b", "y", "alpha", "n"]
*/
/* redteam
operator = "axpb"
tries = "includes a device that never ends"
expect = "structural"
says = "@INCLUDE@"
*/
#include "/dev/zero"

extern "C" void axpb(const T* x, const T* b, T* y, T alpha, int n) {
    const bool worked = true;
    for (int i = 0; i < n; i++) y[i] = worked ? alpha * x[i] + b[i] : 0;
}
