/*! evo
[[buffer]]
name = "kept"
dtype = "T"
shape = ["n"]
[[launch]]
kernel = "axpb"
args = ["x", "b", "y", "kept", "alpha", "n"]
*/
/* redteam
operator = "axpb"
tries = "returns what the scratch buffer holds from an earlier call"
expect = "caught"
says = "out of bounds"
*/
extern "C" void axpb(const T* x, const T* b, T* y, T* kept, T alpha, int n) {
    for (int i = 0; i < n; i++) {
        y[i] = kept[i];
        kept[i] = alpha * x[i] + b[i];
    }
}
