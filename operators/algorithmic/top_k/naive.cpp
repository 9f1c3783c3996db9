/*! evo
[[launch]]
kernel = "top_k"
args = ["x", "values", "indices", "n", "k"]
*/

extern "C" void top_k(const T* x, T* values, int* indices, int n, int k) {
    int found = 0;
    for (int i = 0; i < n; i++) {
        ACC value = load(x[i]);
        if (found == k && !(value > load(values[k - 1]))) continue;
        int at = found < k ? found++ : k - 1;
        for (; at > 0 && value > load(values[at - 1]); at--) {
            values[at] = values[at - 1];
            indices[at] = indices[at - 1];
        }
        values[at] = x[i];
        indices[at] = i;
    }
}
