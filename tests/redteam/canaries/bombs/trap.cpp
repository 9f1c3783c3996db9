/*! evo
[[launch]]
kernel = "axpb"
args = ["x", "b", "y", "alpha", "n"]
*/
/* redteam
operator = "axpb"
tries = "executes an illegal instruction"
expect = "caught"
says = "illegal instruction"
*/
extern "C" void axpb(const T* x, const T* b, T* y, T alpha, int n) {
    if (n > 0) __builtin_trap();
}
