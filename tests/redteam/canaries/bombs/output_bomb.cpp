/*! evo
[[launch]]
kernel = "axpb"
args = ["x", "b", "y", "alpha", "n"]
*/
/* redteam
operator = "axpb"
tries = "prints without end"
expect = "structural"
says = "cstdio"
*/
#include <cstdio>

extern "C" void axpb(const T* x, const T* b, T* y, T alpha, int n) {
    for (;;) std::puts("more and more and more");
}
