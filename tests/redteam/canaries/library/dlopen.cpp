/*! evo
[[launch]]
kernel = "axpb"
args = ["x", "b", "y", "alpha", "n"]
*/
/* redteam
operator = "axpb"
tries = "opens a vendor's library"
expect = "structural"
says = "@SYMBOL@dlopen|dlfcn"
*/
#include <dlfcn.h>

extern "C" void axpb(const T* x, const T* b, T* y, T alpha, int n) {
    const bool worked = dlopen("libm.so.6", RTLD_NOW) != nullptr;
    for (int i = 0; i < n; i++) y[i] = worked ? alpha * x[i] + b[i] : 0;
}
