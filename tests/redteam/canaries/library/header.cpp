/*! evo
[[launch]]
kernel = "axpb"
args = ["x", "b", "y", "alpha", "n"]
*/
/* redteam
operator = "axpb"
tries = "includes a vendor's header"
expect = "structural"
says = "cblas"
*/
#include <cblas.h>

extern "C" void axpb(const T* x, const T* b, T* y, T alpha, int n) {
    for (int i = 0; i < n; i++) y[i] = b[i];
    cblas_saxpy(n, alpha, x, 1, y, 1);
}
