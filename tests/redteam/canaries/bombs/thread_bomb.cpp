/*! evo
[[launch]]
kernel = "axpb"
args = ["x", "b", "y", "alpha", "n"]
*/
/* redteam
operator = "axpb"
tries = "asks for four thousand threads that never end"
expect = "caught"
*/
extern "C" void axpb(const T* x, const T* b, T* y, T alpha, int n) {
#pragma omp parallel num_threads(4000)
    for (volatile int i = 0;;) i = 1;
}
