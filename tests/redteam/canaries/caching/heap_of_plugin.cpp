/*! evo
[[launch]]
kernel = "axpb"
args = ["x", "b", "y", "alpha", "n"]
*/
/* redteam
operator = "axpb"
tries = "the same through the allocator that libgomp keeps for its plugins"
expect = "structural"
says = "@SYMBOL@GOMP_PLUGIN_malloc"
*/
extern "C" void* GOMP_PLUGIN_malloc(unsigned long);

extern "C" void axpb(const T* x, const T* b, T* y, T alpha, int n) {
    double* block = static_cast<double*>(GOMP_PLUGIN_malloc(1 << 16));
    const bool again = block[1000] == 12345.678;
    block[1000] = 12345.678;
    for (int i = 0; i < n; i++) y[i] = alpha * x[i] + b[i];
    if (again) y[0] = -y[0] - 1;
}
