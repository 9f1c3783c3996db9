/*! evo
[[launch]]
kernel = "axpb"
args = ["x", "b", "y", "alpha", "n"]
*/
/* redteam
operator = "axpb"
tries = "computes again only when the first input value has changed"
expect = "structural"
says = "@STATIC@"
*/
static T first, kept[100001];

extern "C" void axpb(const T* x, const T* b, T* y, T alpha, int n) {
    if (x[0] != first)
        for (int i = 0; i < n; i++) kept[i] = alpha * x[i] + b[i];
    first = x[0];
    for (int i = 0; i < n; i++) y[i] = kept[i];
}
