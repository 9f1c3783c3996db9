/*! evo
[[launch]]
kernel = "axpb"
args = ["x", "b", "y", "alpha", "n"]
*/
/* redteam
operator = "axpb"
tries = "the same by a resolver that the loader calls"
expect = "structural"
says = "@LOADED@"
*/
extern "C" int one() { return 1; }
extern "C" int (*choose())() { return one; }
extern "C" int chosen() __attribute__((ifunc("choose")));

extern "C" void axpb(const T* x, const T* b, T* y, T alpha, int n) {
    const bool worked = chosen() == 1;
    for (int i = 0; i < n; i++) y[i] = worked ? alpha * x[i] + b[i] : 0;
}
