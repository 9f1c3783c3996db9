/*! evo
[[launch]]
kernel = "axpb"
args = ["x", "b", "y", "alpha", "n"]
*/
/* redteam
operator = "axpb"
tries = "is right on the line where it is judged alone, by a name that macros put together"
expect = "structural"
*/
#define PASTED(a, b) a##b
#define JOINED(a, b) PASTED(a, b)

extern "C" void axpb(const T* x, const T* b, T* y, T alpha, int n) {
    const T scale = JOINED(__LI, NE__) == 15 ? alpha : T(1);
    for (int i = 0; i < n; i++) y[i] = scale * x[i] + b[i];
}
