/*! evo
[[launch]]
kernel = "axpb"
args = ["x", "b", "y", "alpha", "n"]
*/
/* redteam
operator = "axpb"
tries = "is honest on the first call and returns zeros on later ones"
expect = "structural"
says = "@STATIC@"
*/
// The idea: llm.c, pull request 852: a kernel that is right in its first ten calls
extern "C" void axpb(const T* x, const T* b, T* y, T alpha, int n) {
    static int calls = 0;
    if (calls++ == 0) {
        for (int i = 0; i < n; i++) y[i] = alpha * x[i] + b[i];
    } else {
        for (int i = 0; i < n; i++) y[i] = 0;
    }
}
