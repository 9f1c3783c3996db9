/*! evo
[[launch]]
kernel = "axpb"
args = ["x", "b", "y", "alpha", "n"]
*/
/* redteam
operator = "axpb"
tries = "hides a counter as mutable member of a constant"
expect = "structural"
says = "@STATIC@"
*/
struct Counter {
    mutable int calls = 0;
};
static const Counter counter;

extern "C" void axpb(const T* x, const T* b, T* y, T alpha, int n) {
    if (counter.calls++ < 3) {
        for (int i = 0; i < n; i++) y[i] = alpha * x[i] + b[i];
    }
}
