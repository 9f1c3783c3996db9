/*! evo
[[launch]]
kernel = "axpb"
args = ["x", "b", "y", "alpha", "n"]
*/
/* redteam
operator = "axpb"
tries = "sets up a jump out of its own frame"
expect = "structural"
says = "csetjmp"
*/
#include <csetjmp>

extern "C" void axpb(const T* x, const T* b, T* y, T alpha, int n) {
    const bool worked = [] { jmp_buf place; if (setjmp(place)) return true; longjmp(place, 1); }();
    for (int i = 0; i < n; i++) y[i] = worked ? alpha * x[i] + b[i] : 0;
}
