/*! evo
[[launch]]
kernel = "prefix_sum"
args = ["x", "y", "n"]
*/

extern "C" void prefix_sum(const T* x, T* y, int n) {
    ACC sum = 0;
    for (int i = 0; i < n; i++) {
        sum += load(x[i]);
        y[i] = store(sum);
    }
}
