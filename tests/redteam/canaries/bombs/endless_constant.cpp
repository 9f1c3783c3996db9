/*! evo
[[launch]]
kernel = "axpb"
args = ["x", "b", "y", "alpha", "n"]
*/
/* redteam
operator = "axpb"
tries = "computes a constant without end"
expect = "structural"
*/
constexpr long turn() {
    long turns = 0;
    for (;;) turns++;
    return turns;
}

extern "C" void axpb(const T* x, const T* b, T* y, T alpha, int n) {
    constexpr long turns = turn();
    y[0] = turns;
}
