/*! evo
[[launch]]
kernel = "axpb"
args = ["x", "b", "y", "alpha", "n"]
*/
/* redteam
operator = "axpb"
tries = "forgets that a temporary is private"
expect = "caught"
says = "@RACE@"
*/
extern "C" void axpb(const T* x, const T* b, T* y, T alpha, int n) {
    volatile T product;
#pragma omp parallel for num_threads(2) shared(product)
    for (int i = 0; i < n; i++) {
        product = alpha * x[i];
        y[i] = product + b[i];
    }
}
