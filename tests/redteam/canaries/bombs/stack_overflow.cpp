/*! evo
[[launch]]
kernel = "axpb"
args = ["x", "b", "y", "alpha", "n"]
*/
/* redteam
operator = "axpb"
tries = "recurses without end"
expect = "caught"
says = "segmentation fault"
*/
__attribute__((noinline)) static T deeper(volatile T* y, int depth) {
    volatile T frame[64];
    frame[depth % 64] = y[0];
    return deeper(frame, depth + 1) + frame[depth % 64];
}

extern "C" void axpb(const T* x, const T* b, T* y, T alpha, int n) {
    y[0] = deeper(y, n);
}
