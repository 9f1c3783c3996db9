/*! evo
[[launch]]
kernel = "axpb"
args = ["x", "b", "y", "alpha", "n"]
*/
/* redteam
operator = "axpb"
tries = "never ends, on every thread"
expect = "caught"
says = "did not finish"
*/
extern "C" void axpb(const T* x, const T* b, T* y, T alpha, int n) {
#pragma omp parallel num_threads(8)
    for (volatile int i = 0;;) i = 1;
}
