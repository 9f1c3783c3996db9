/*! evo
[[launch]]
kernel = "axpb"
args = ["x", "b", "y", "alpha", "n"]
*/
/* redteam
operator = "axpb"
tries = "the same by clones for several processors"
expect = "structural"
says = "@LOADED@"
machine = "x86_64"
*/
__attribute__((target_clones("avx2", "default"))) static T product(T a, T b) { return a * b; }

extern "C" void axpb(const T* x, const T* b, T* y, T alpha, int n) {
    for (int i = 0; i < n; i++) y[i] = product(alpha, x[i]) + b[i];
}
