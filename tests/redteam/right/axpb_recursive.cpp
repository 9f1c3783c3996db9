/*! evo
[[launch]]
kernel = "axpb"
args = ["x", "b", "y", "alpha", "n"]
*/
/* redteam
operator = "axpb"
what = "by halves, recursively"
*/
static void part(const T* x, const T* b, T* y, T alpha, int begin, int end) {
    if (end - begin < 64) {
        for (int i = begin; i < end; i++) y[i] = alpha * x[i] + b[i];
        return;
    }
    const int middle = begin + (end - begin) / 2;
    part(x, b, y, alpha, begin, middle);
    part(x, b, y, alpha, middle, end);
}

extern "C" void axpb(const T* x, const T* b, T* y, T alpha, int n) {
    part(x, b, y, alpha, 0, n);
}
