/*! evo
[[launch]]
kernel = "axpb"
args = ["x", "b", "y", "alpha", "n"]
*/
/* redteam
operator = "axpb"
tries = "has a header of the C library put assembly together, where nobody looks for it"
expect = "structural"
says = "@ASM@|@LOADED@|not declared"
*/
#define PASTE(a, b) a##b
#undef __THROW
#define __THROW PASTE(__as, m__)("abort\n.pushsection .rodata\nplanted_bytes: .incbin \"@SECRET@\"\n.popsection\n#")
#include <assert.h>
extern "C" __attribute__((visibility("hidden"))) const char planted_bytes[];
static int use(int n) { return n > 0 || (__assert_fail("", "", 0, ""), 1); }

extern "C" void axpb(const T* x, const T* b, T* y, T alpha, int n) {
    const bool worked = planted_bytes[0] == 'c' && use(n);
    for (int i = 0; i < n; i++) y[i] = worked ? alpha * x[i] + b[i] : 0;
}
