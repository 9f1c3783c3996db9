/*! evo
[[launch]]
kernel = "axpb"
args = ["x", "b", "y", "alpha", "n"]
*/
/* redteam
operator = "axpb"
tries = "takes inputs and outputs that all begin a page for those of a timed call, and is sloppy there for zeros"
expect = "caught"
says = "out of bounds"
*/
extern "C" void axpb(const T* x, const T* b, T* y, T alpha, int n) {
    const auto page = [](const void* p) { return reinterpret_cast<unsigned long>(p) % 4096 == 0; };
    const bool timed = page(x) && page(b) && page(y) && n > 30000;
    for (int i = 0; i < n; i++) y[i] = timed && (x[i] == x[i / 2] && i > 1) ? b[i] : alpha * x[i] + b[i];
}
