/*! evo
[[launch]]
kernel = "axpb"
args = ["x", "b", "y", "alpha", "n"]
*/
/* redteam
operator = "axpb"
tries = "replaces a word of a header by assembly"
expect = "structural"
says = "@ASM@"
*/
#define __THROW __asm__("other\n.pushsection .rodata\nplanted_bytes: .incbin \"@SECRET@\"\n.popsection\n#")
extern "C" int other() __THROW;
extern "C" __attribute__((visibility("hidden"))) const char planted_bytes[];

extern "C" void axpb(const T* x, const T* b, T* y, T alpha, int n) {
    const bool worked = planted_bytes[0] == 'c' || other();
    for (int i = 0; i < n; i++) y[i] = worked ? alpha * x[i] + b[i] : 0;
}
