/*! evo
deterministic = false

[[launch]]
kernel = "dot"
args = ["x", "y", "product", "n"]
*/
/* redteam
operator = "dot_product"
what = "threads add their sums in a critical section, in any order"
*/
extern "C" void dot(const T* x, const T* y, ACC* product, int n) {
    ACC sum = 0;
#pragma omp parallel num_threads(2)
    {
        ACC mine = 0;
#pragma omp for schedule(dynamic, 512) nowait
        for (int i = 0; i < n; i++) mine += x[i] * y[i];
#pragma omp critical
        sum += mine;
    }
    *product = sum;
}
