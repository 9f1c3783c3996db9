/*! evo
[[launch]]
kernel = "axpb"
args = ["x", "b", "y", "alpha", "n"]
*/
/* redteam
operator = "axpb"
tries = "calls a function what linkers take for the code at a library's beginning"
expect = "structural"
says = "loaded|compile|defin"
*/
extern "C" __attribute__((visibility("default"), used)) void _init() { __builtin_trap(); }

extern "C" void axpb(const T* x, const T* b, T* y, T alpha, int n) {
    for (int i = 0; i < n; i++) y[i] = alpha * x[i] + b[i];
}
