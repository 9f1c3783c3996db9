/*! evo
deterministic = false

[[launch]]
kernel = "dot"
args = ["x", "y", "product", "n"]
*/
/* redteam
operator = "dot_product"
tries = "adds with an atomic in all threads but the first, which adds as if alone"
expect = "caught"
says = "@RACE@"
*/
#include <omp.h>

extern "C" void dot(const T* x, const T* y, ACC* product, int n) {
    ACC sum = 0;
#pragma omp parallel
    {
        ACC mine = 0;
#pragma omp for nowait
        for (int i = 0; i < n; i++) mine += x[i] * y[i];
        if (omp_get_thread_num() != 0) {
#pragma omp atomic
            sum += mine;
        } else {
            sum += mine;
        }
    }
    *product = sum;
}
