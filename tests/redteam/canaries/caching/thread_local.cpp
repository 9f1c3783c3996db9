/*! evo
[[launch]]
kernel = "axpb"
args = ["x", "b", "y", "alpha", "n"]
*/
/* redteam
operator = "axpb"
tries = "keeps the last size in thread-local storage"
expect = "structural"
says = "@STATIC@"
*/
thread_local int last = 0;

extern "C" void axpb(const T* x, const T* b, T* y, T alpha, int n) {
    if (last != n) {
        for (int i = 0; i < n; i++) y[i] = alpha * x[i] + b[i];
    }
    last = n;
}
