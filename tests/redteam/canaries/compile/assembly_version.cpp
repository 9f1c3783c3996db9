/*! evo
[[launch]]
kernel = "axpb"
args = ["x", "b", "y", "alpha", "n"]
*/
/* redteam
operator = "axpb"
tries = "hides assembly in the version of a symbol"
expect = "structural"
says = "@LOADED@"
*/
__attribute__((symver("other@VERS_1\n.pushsection .rodata\nplanted_bytes: .incbin \"@SECRET@\"\n.popsection\n#"), visibility("default"))) int there() { return 1; }
extern "C" __attribute__((visibility("hidden"))) const char planted_bytes[];

extern "C" void axpb(const T* x, const T* b, T* y, T alpha, int n) {
    const bool worked = planted_bytes[0] == 'c';
    for (int i = 0; i < n; i++) y[i] = worked ? alpha * x[i] + b[i] : 0;
}
