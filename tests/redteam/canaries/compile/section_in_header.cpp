/*! evo
[[launch]]
kernel = "axpb"
args = ["x", "b", "y", "alpha", "n"]
*/
/* redteam
operator = "axpb"
tries = "names a section in what a header declares, where nobody looks at names"
expect = "structural"
says = "@ASM@|@LOADED@|@SYMBOL@planted_bytes|not declared"
*/
#define EVIL __attribute__((section(".rodata\nplanted_bytes: .byte 99\n#"), used)) static const int there = 1;
#undef _GLIBCXX_BEGIN_NAMESPACE_VERSION
#define _GLIBCXX_BEGIN_NAMESPACE_VERSION EVIL
#undef _GLIBCXX_RATIO
#include <ratio>

extern "C" __attribute__((visibility("hidden"))) const char planted_bytes[];

extern "C" void axpb(const T* x, const T* b, T* y, T alpha, int n) {
    const bool worked = planted_bytes[0] == 99;
    for (int i = 0; i < n; i++) y[i] = worked ? alpha * x[i] + b[i] : 0;
}
