/*! evo
[[launch]]
kernel = "vector_add"
args = ["x", "y", "z", "n"]
*/

extern "C" void vector_add(const T* x, const T* y, T* z, int n) {
    for (int i = 0; i < n; i++) {
        z[i] = store(load(x[i]) + load(y[i]));
    }
}
