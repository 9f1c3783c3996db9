/*! evo
[[launch]]
kernel = "reverse"
args = ["x", "y", "n"]
*/
/* redteam
operator = "reverse_array"
tries = "writes +0 wherever an element equals zero"
expect = "caught"
says = "bit by bit"
*/
extern "C" void reverse(const T* x, T* y, int n) {
    for (int i = 0; i < n; i++) y[i] = x[n - 1 - i] == 0 ? T(0) : x[n - 1 - i];
}
