/*! evo
[[launch]]
kernel = "axpb"
args = ["x", "b", "y", "alpha", "n"]
*/
/* redteam
operator = "axpb"
tries = "puts the name of a section in brackets of its own"
expect = "structural"
says = "@LOADED@"
*/
__attribute__((section((".rodata\nplanted_bytes: .byte 99\n#")), used)) static const int there = 1;

extern "C" __attribute__((visibility("hidden"))) const char planted_bytes[];

extern "C" void axpb(const T* x, const T* b, T* y, T alpha, int n) {
    const bool worked = planted_bytes[0] == 99;
    for (int i = 0; i < n; i++) y[i] = worked ? alpha * x[i] + b[i] : 0;
}
