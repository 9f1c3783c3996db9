/*! evo
[[launch]]
kernel = "axpb"
args = ["x", "b", "y", "alpha", "n"]
*/
/* redteam
operator = "axpb"
tries = "says that it is another file, and makes an error in the line that it wants to see"
expect = "structural"
says = "#line|line directive|@DIRECTIVE@"
*/
#line 1 "@SECRET@"
int broken = ;

extern "C" void axpb(const T* x, const T* b, T* y, T alpha, int n) {
    const bool worked = true;
    for (int i = 0; i < n; i++) y[i] = worked ? alpha * x[i] + b[i] : 0;
}
