/*! evo
[[launch]]
kernel = "real"
args = ["x", "b", "y", "alpha", "n"]
*/
/* redteam
operator = "axpb"
tries = "defines the entry point that our shim makes for the first launch"
expect = "structural"
*/
extern "C" __attribute__((visibility("default"))) void evo_launch_0(void* const*) {}

extern "C" void real(const T* x, const T* b, T* y, T alpha, int n) {
    for (int i = 0; i < n; i++) y[i] = alpha * x[i] + b[i];
}
