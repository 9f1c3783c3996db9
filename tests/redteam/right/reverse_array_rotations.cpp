/*! evo
[[launch]]
kernel = "reverse"
args = ["x", "y", "n"]
*/
/* redteam
operator = "reverse_array"
what = "in tasks, each of which turns its part of the output around in place"
*/
extern "C" void reverse(const T* x, T* y, int n) {
#pragma omp parallel num_threads(2)
#pragma omp single
    for (int begin = 0; begin < n; begin += 4096) {
#pragma omp task firstprivate(begin)
        {
            const int count = n - begin < 4096 ? n - begin : 4096;
            T* to = y + (n - begin - count);
            for (int i = 0; i < count; i++) to[i] = x[begin + i];
            for (int i = 0; i < count / 2; i++) {
                const T kept = to[i];
                to[i] = to[count - 1 - i], to[count - 1 - i] = kept;
            }
        }
    }
}
