/*! evo
deterministic = false

[[launch]]
kernel = "dot"
args = ["x", "y", "product", "n"]
*/
/* redteam
operator = "dot_product"
tries = "adds to one sum in two critical sections, each with a name of its own"
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
        if (omp_get_thread_num() == 0) {
#pragma omp critical(first)
            sum += mine;
        } else {
#pragma omp critical(others)
            sum += mine;
        }
    }
    *product = sum;
}
