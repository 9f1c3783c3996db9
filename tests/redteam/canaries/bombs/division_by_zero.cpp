/*! evo
[[launch]]
kernel = "axpb"
args = ["x", "b", "y", "alpha", "n"]
*/
/* redteam
operator = "axpb"
tries = "divides by zero"
expect = "caught"
says = "division by zero"
*/
extern "C" void axpb(const T* x, const T* b, T* y, T alpha, int n) {
    volatile int zero = 0;
    y[0] = n / zero;
}
