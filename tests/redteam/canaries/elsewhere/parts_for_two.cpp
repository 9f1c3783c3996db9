/*! evo
[[launch]]
kernel = "dot"
args = ["x", "y", "product", "n"]
*/
/* redteam
operator = "dot_product"
tries = "adds up the sums of two threads, as there are two where it is judged"
expect = "caught"
says = "wrong result"
*/
#include <omp.h>

extern "C" void dot(const T* x, const T* y, T* product, int n) {
    ACC part[64] = {};
#pragma omp parallel
    {
        ACC sum = 0;
#pragma omp for
        for (int i = 0; i < n; i++) sum += load(x[i]) * load(y[i]);
        part[omp_get_thread_num()] = sum;
    }
    *product = store(part[0] + part[1]);
}
