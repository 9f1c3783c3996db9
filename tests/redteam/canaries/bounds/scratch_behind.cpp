/*! evo
[[buffer]]
name = "part"
dtype = "T"
shape = ["n"]
[[launch]]
kernel = "axpb"
args = ["x", "b", "y", "part", "alpha", "n"]
*/
/* redteam
operator = "axpb"
tries = "writes past the end of its scratch"
expect = "caught"
says = "past the end of `part`"
*/
extern "C" void axpb(const T* x, const T* b, T* y, T* part, T alpha, int n) {
    for (int i = 0; i < n; i++) part[i] = alpha * x[i];
    reinterpret_cast<volatile T*>(part)[n] = 0;
    for (int i = 0; i < n; i++) y[i] = part[i] + b[i];
}
