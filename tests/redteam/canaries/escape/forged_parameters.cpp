/*! evo
[[launch]]
kernel = "axpb"
args = ["x", "b", "y", "alpha", "n"]
*/
/* redteam
operator = "axpb"
tries = "defines the table of its parameters itself"
expect = "structural"
*/
extern "C" {
extern const int evo_params_0[1];
const int evo_params_0[1] = {1 << 30};
}

extern "C" void axpb(const T* x, const T* b, T* y, T alpha, int n) {
    for (int i = 0; i < n; i++) y[i] = alpha * x[i] + b[i];
}
