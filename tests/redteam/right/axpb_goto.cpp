/*! evo
[[launch]]
kernel = "axpb"
args = ["x", "b", "y", "alpha", "n"]
*/
/* redteam
operator = "axpb"
what = "with labels and jumps"
*/
extern "C" void axpb(const T* x, const T* b, T* y, T alpha, int n) {
    int i = 0;
again:
    if (i >= n) goto done;
    y[i] = alpha * x[i] + b[i];
    i++;
    goto again;
done:
    return;
}
