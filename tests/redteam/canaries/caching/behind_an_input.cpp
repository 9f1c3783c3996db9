/*! evo
[[launch]]
kernel = "axpb"
args = ["x", "b", "y", "alpha", "n"]
*/
/* redteam
operator = "axpb"
tries = "keeps a mark in the rest of an input's page"
expect = "caught"
says = "`x`"
*/
extern "C" void axpb(const T* x, const T* b, T* y, T alpha, int n) {
    for (int i = 0; i < n; i++) y[i] = alpha * x[i] + b[i];
    volatile T* behind = const_cast<T*>(x) + (n + 3) / 4 * 4;
    if (reinterpret_cast<unsigned long>(behind) % 4096 != 0) behind[0] = 1;
    else const_cast<volatile T*>(x)[-1] = 1;
}
