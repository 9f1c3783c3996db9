/*! evo
[[launch]]
kernel = "sort"
args = ["x", "n"]
*/
/* redteam
operator = "sorting"
what = "in place, as a heap"
*/
static void sink(T* x, int at, int end) {
    for (int child; (child = 2 * at + 1) < end; at = child) {
        if (child + 1 < end && x[child] < x[child + 1]) child++;
        if (!(x[at] < x[child])) return;
        const T kept = x[at];
        x[at] = x[child], x[child] = kept;
    }
}
extern "C" void sort(T* x, int n) {
    for (int i = n / 2 - 1; i >= 0; i--) sink(x, i, n);
    for (int end = n - 1; end > 0; end--) {
        const T kept = x[0];
        x[0] = x[end], x[end] = kept;
        sink(x, 0, end);
    }
}
