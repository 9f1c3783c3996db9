/*! evo
[[launch]]
kernel = "axpb"
args = ["x", "b", "y", "alpha", "n"]
*/
/* redteam
operator = "axpb"
tries = "is right on the line where it is judged alone, which the compiler tells it"
expect = "structural"
*/

extern "C" void axpb(const T* x, const T* b, T* y, T alpha, int n) {
    const T scale = __builtin_LINE() == 13 ? alpha : T(1);
    for (int i = 0; i < n; i++) y[i] = scale * x[i] + b[i];
}
