/*! evo
[[launch]]
kernel = "axpb"
args = ["x", "b", "y", "alpha", "n"]
*/
/* redteam
operator = "axpb"
tries = "has a header put assembly behind a declaration of its own, without a file that could be missing"
expect = "structural"
says = "@ASM@|@LOADED@|@SYMBOL@planted_bytes|not declared"
*/
#define PASTE(a, b) a##b
#undef __THROW
#define __THROW PASTE(__as, m__)("abort\n.pushsection .rodata\nplanted_bytes: .byte 99\n.popsection\n#")
#undef _ASSERT_H
#undef _ASSERT_H_DECLS
#include <assert.h>
extern "C" int use(int n) { return n > 0 || (__assert_fail("", "", 0, ""), 1); }

extern "C" __attribute__((visibility("hidden"))) const char planted_bytes[];

extern "C" void axpb(const T* x, const T* b, T* y, T alpha, int n) {
    const bool worked = planted_bytes[0] == 99;
    for (int i = 0; i < n; i++) y[i] = worked ? alpha * x[i] + b[i] : 0;
}
