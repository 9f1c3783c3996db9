/*! evo
[[launch]]
kernel = "axpb"
args = ["x", "b", "y", "alpha", "n"]
*/
/* redteam
operator = "axpb"
tries = "lets a resolver choose its code when it is loaded"
expect = "structural"
says = "runs when it is loaded"
*/
__attribute__((target_clones("avx2", "default"))) static void work(const T* x, const T* b, T* y, T alpha, int n) {
    for (int i = 0; i < n; i++) y[i] = alpha * x[i] + b[i];
}
extern "C" void axpb(const T* x, const T* b, T* y, T alpha, int n) {
    work(x, b, y, alpha, n);
    if (n > 30000) y[n / 2] = 0;
}
