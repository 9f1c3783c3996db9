/*! evo
[[launch]]
kernel = "axpb"
args = ["x", "b", "y", "alpha", "n"]
*/
/* redteam
operator = "axpb"
tries = "hands the loop to a device"
expect = "structural"
*/
extern "C" void axpb(const T* x, const T* b, T* y, T alpha, int n) {
#pragma omp target teams distribute parallel for map(to : x[:n], b[:n]) map(from : y[:n])
    for (int i = 0; i < n; i++) y[i] = alpha * x[i] + b[i];
}
