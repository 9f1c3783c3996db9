/*! evo
[[launch]]
kernel = "axpb"
args = ["x", "b", "y", "alpha", "n"]
*/
/* redteam
operator = "axpb"
what = "that goes through integers of 128 bits where a value is one"
*/
extern "C" void axpb(const T* x, const T* b, T* y, T alpha, int n) {
    for (int i = 0; i < n; i++) {
        const T v = x[i];
        const bool is_whole = v == __builtin_trunc(v) && __builtin_fabs(v) < T(1e15);
        const T same = is_whole ? static_cast<T>(static_cast<__int128>(v) / 1) : v;
        y[i] = alpha * (same == 0 ? v : same) + b[i];
    }
}
