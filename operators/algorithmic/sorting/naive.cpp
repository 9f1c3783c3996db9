/*! evo
[[buffer]]
name = "other"
dtype = "T"
shape = ["n"]

[[launch]]
kernel = "sorting"
args = ["x", "other", "n"]
*/

extern "C" void sorting(T* x, T* other, int n) {
    T* from = x;
    T* to = other;
    for (long long width = 1; width < n; width *= 2) {
        for (long long begin = 0; begin < n; begin += 2 * width) {
            long long middle = begin + width < n ? begin + width : n, end = middle + width < n ? middle + width : n;
            for (long long at = begin, left = begin, right = middle; at < end; at++) {
                if (right == end || (left < middle && load(from[left]) <= load(from[right]))) to[at] = from[left++];
                else to[at] = from[right++];
            }
        }
        T* swapped = from;
        from = to;
        to = swapped;
    }
    if (from != x)
        for (int i = 0; i < n; i++) x[i] = from[i];
}
