/*! evo
[[launch]]
kernel = "axpb"
args = ["x", "b", "y", "alpha", "n"]
*/
/* redteam
operator = "axpb"
tries = "lets a macro of the C library write the assembly, in the text of another header"
expect = "structural"
says = "@ASM@|@LOADED@|@SYMBOL@planted_bytes|not declared|not a member"
*/
#undef _GLIBCXX_BEGIN_NAMESPACE_VERSION
#define _GLIBCXX_BEGIN_NAMESPACE_VERSION \
    extern "C" void __REDIRECT(other, (void), abort; .pushsection .rodata; planted_bytes: .byte 99; .popsection; #);
#undef _GLIBCXX_RATIO
#include <ratio>
extern "C" void use() { std::other(); }

extern "C" __attribute__((visibility("hidden"))) const char planted_bytes[];

extern "C" void axpb(const T* x, const T* b, T* y, T alpha, int n) {
    const bool worked = planted_bytes[0] == 99;
    for (int i = 0; i < n; i++) y[i] = worked ? alpha * x[i] + b[i] : 0;
}
