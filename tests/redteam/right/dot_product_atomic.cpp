/*! evo
deterministic = false

[[launch]]
kernel = "dot"
args = ["x", "y", "product", "n"]
*/
/* redteam
operator = "dot_product"
what = "threads add their sums with atomics"
*/

extern "C" void dot(const T* x, const T* y, ACC* product, int n) {
    ACC sum = 0;
#pragma omp parallel
    {
        ACC mine = 0;
#pragma omp for schedule(guided) nowait
        for (int i = 0; i < n; i++) mine += x[i] * y[i];
#pragma omp atomic
        sum += mine;
    }
    *product = sum;
}
