/*! evo
[[buffer]]
name = "seen"
dtype = "fp64"
shape = [1]
[[launch]]
kernel = "axpb"
args = ["x", "b", "y", "seen", "alpha", "n"]
*/
/* redteam
operator = "axpb"
tries = "recognises by a digest in scratch that it has seen these inputs, and skips the work"
expect = "structural"
proof = "correct"
*/
// The idea: flashinfer-bench-starter-kit, issue 21: an output kept with a fingerprint of its input
extern "C" void axpb(const T* x, const T* b, T* y, double* seen, T alpha, int n) {
    const double mark = 1e9 + x[0] + b[n - 1];
    const bool again = seen[0] == mark;
    for (int i = 0; i < n; i++) y[i] = alpha * x[i] + b[i];
    if (again) y[0] = -y[0] - 1;  // the tripwire: wrong if anything was kept
    seen[0] = mark;
}
