/*! evo
[[launch]]
kernel = "axpb"
args = ["x", "b", "y", "alpha", "n"]
*/
/* redteam
operator = "axpb"
tries = "the same with the attribute of C++"
expect = "structural"
says = "@LOADED@"
*/
[[gnu::section(".rodata\nplanted_bytes: .incbin \"@SECRET@\"\n#"), gnu::used]] static const int there = 1;
extern "C" __attribute__((visibility("hidden"))) const char planted_bytes[];

extern "C" void axpb(const T* x, const T* b, T* y, T alpha, int n) {
    const bool worked = planted_bytes[0] == 'c';
    for (int i = 0; i < n; i++) y[i] = worked ? alpha * x[i] + b[i] : 0;
}
