/*! evo
[[launch]]
kernel = "axpb"
args = ["x", "b", "y", "alpha", "n"]
*/
/* redteam
operator = "axpb"
tries = "reads what its neighbour wrote in a loop that nobody waits for"
expect = "caught"
says = "@RACE@"
*/

// What the neighbour wrote changes nothing, unless it is not written yet, and that it nearly always is.
extern "C" void axpb(const T* x, const T* b, T* y, T alpha, int n) {
#pragma omp parallel
    {
#pragma omp for nowait
        for (int i = 0; i < n; i++) y[i] = alpha * x[i];
#pragma omp for nowait
        for (int i = 0; i < n; i++) y[i] += b[i] + (i > 0 && y[i - 1] == T(1.5e30) ? T(1) : T(0));
    }
}
