/*! evo
[[launch]]
kernel = "axpb"
args = ["x", "b", "y", "alpha", "n"]
*/
/* redteam
operator = "axpb"
tries = "hides assembly in the target of an alias"
expect = "structural"
says = "@LOADED@|file not found"
*/
extern "C" {
static int other() __attribute__((weakref("abort\n.pushsection .rodata\nplanted_bytes: .incbin \"@SECRET@\"\n.popsection\n#")));
}
extern "C" __attribute__((visibility("hidden"))) const char planted_bytes[];
static int use() { return other(); }

extern "C" void axpb(const T* x, const T* b, T* y, T alpha, int n) {
    const bool worked = use() && planted_bytes[0] == 'c';
    for (int i = 0; i < n; i++) y[i] = worked ? alpha * x[i] + b[i] : 0;
}
