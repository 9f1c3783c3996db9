/*! evo
[[launch]]
kernel = "top_k"
args = ["x", "values", "indices", "n", "k"]
*/
/* redteam
operator = "top_k"
what = "from the last element on, into a list that is kept in order"
*/
extern "C" void top_k(const T* x, T* values, int* indices, int n, int k) {
    int found = 0;
    for (int i = n - 1; i >= 0; i--) {
        if (found == k && x[i] < values[k - 1]) continue;
        int at = found < k ? found++ : k - 1;
        for (; at > 0 && x[i] >= values[at - 1]; at--) values[at] = values[at - 1], indices[at] = indices[at - 1];
        values[at] = x[i], indices[at] = i;
    }
}
