/*! evo
[[launch]]
kernel = "reverse_array"
args = ["x", "y", "n"]
*/

extern "C" void reverse_array(const T* x, T* y, int n) {
    for (int i = 0; i < n; i++) {
        y[i] = x[n - 1 - i];
    }
}
