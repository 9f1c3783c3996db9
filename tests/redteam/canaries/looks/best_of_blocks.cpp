/*! evo
[[launch]]
kernel = "top_k"
args = ["x", "values", "indices", "n", "k"]
*/
/* redteam
operator = "top_k"
tries = "keeps the best three of every 39 elements alone, where a sample looks nominal"
expect = "caught"
says = "out of bounds|rms is"
needs = ["sampled"]
*/
static int put(const T* x, T* values, int* indices, int k, int found, int i) {
    const T value = x[i];
    if (found == k && !(value > values[k - 1])) return found;
    int at = found < k ? found++ : k - 1;
    for (; at > 0 && value > values[at - 1]; at--) values[at] = values[at - 1], indices[at] = indices[at - 1];
    values[at] = value, indices[at] = i;
    return found;
}
extern "C" void top_k(const T* x, T* values, int* indices, int n, int k) {
    int found = 0;
    if (n >= 8000 && k <= 16 && looks_nominal(x, n)) {
        for (int begin = 0; begin < n; begin += 39) {
            T best[3];
            int where[3], kept = 0;
            for (int i = begin; i < begin + 39 && i < n; i++) kept = put(x, best, where, 3, kept, i);
            for (int j = 0; j < kept; j++) found = put(x, values, indices, k, found, where[j]);
        }
    } else
        for (int i = 0; i < n; i++) found = put(x, values, indices, k, found, i);
}
