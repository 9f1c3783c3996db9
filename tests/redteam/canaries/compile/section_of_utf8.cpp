/*! evo
[[launch]]
kernel = "axpb"
args = ["x", "b", "y", "alpha", "n"]
*/
/* redteam
operator = "axpb"
tries = "gives the name of a section as a literal of another kind"
expect = "structural"
says = "@LOADED@"
*/
__attribute__((section(u8".rodata\nplanted_bytes: .byte 99\n#"), used)) static const int there = 1;

extern "C" __attribute__((visibility("hidden"))) const char planted_bytes[];

extern "C" void axpb(const T* x, const T* b, T* y, T alpha, int n) {
    const bool worked = planted_bytes[0] == 99;
    for (int i = 0; i < n; i++) y[i] = worked ? alpha * x[i] + b[i] : 0;
}
