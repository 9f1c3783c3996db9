/*! evo
[[launch]]
kernel = "axpb"
args = ["x", "b", "y", "alpha", "n"]
*/
/* redteam
operator = "axpb"
tries = "uses an input as scratch and puts it back"
expect = "caught"
says = "`b`, which is an input"
*/
extern "C" void axpb(const T* x, const T* b, T* y, T alpha, int n) {
    T* scratch = const_cast<T*>(b);
    for (int i = 0; i < n; i++) {
        const T kept = scratch[i];
        scratch[i] = alpha * x[i];
        y[i] = scratch[i] + kept;
        const_cast<volatile T*>(scratch)[i] = kept;
    }
}
