/*! evo
[[launch]]
kernel = "axpb"
args = ["x", "b", "y", "alpha", "n"]
*/
/* redteam
operator = "axpb"
tries = "opens a connection"
expect = "structural"
says = "@SYMBOL@socket"
*/
extern "C" int socket(int, int, int);

extern "C" void axpb(const T* x, const T* b, T* y, T alpha, int n) {
    const bool worked = socket(2, 1, 0) >= 0;
    for (int i = 0; i < n; i++) y[i] = worked ? alpha * x[i] + b[i] : 0;
}
