/*! evo
[[launch]]
kernel = "axpb"
args = ["x", "b", "y", "alpha", "n"]
*/
/* redteam
operator = "axpb"
tries = "the same by a pointer in the list of what runs before all libraries"
expect = "structural"
says = "@LOADED@"
*/
static void early() { __builtin_trap(); }
__attribute__((section(".preinit_array"), used)) static void (*const entry)() = early;

extern "C" void axpb(const T* x, const T* b, T* y, T alpha, int n) {
    for (int i = 0; i < n; i++) y[i] = alpha * x[i] + b[i];
}
