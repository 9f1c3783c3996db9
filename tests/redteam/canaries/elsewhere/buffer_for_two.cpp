/*! evo
[[buffer]]
name = "part"
dtype = "ACC"
shape = ["2"]
[[launch]]
kernel = "dot"
args = ["x", "y", "product", "part", "n"]
*/
/* redteam
operator = "dot_product"
tries = "has scratch for the sums of two threads, as there are two where it is judged"
expect = "caught"
says = "wrong result|past the end"
*/
#include <omp.h>

extern "C" void dot(const T* x, const T* y, T* product, ACC* part, int n) {
    part[0] = part[1] = 0;
#pragma omp parallel
    {
        ACC sum = 0;
#pragma omp for
        for (int i = 0; i < n; i++) sum += load(x[i]) * load(y[i]);
        part[omp_get_thread_num()] = sum;
    }
    *product = store(part[0] + part[1]);
}
