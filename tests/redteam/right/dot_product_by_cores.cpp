/*! evo
[[buffer]]
name = "part"
dtype = "ACC"
shape = ["cpu_count * 16"]
[[launch]]
kernel = "dot"
args = ["x", "y", "product", "part", "n", "cpu_count"]
*/
/* redteam
operator = "dot_product"
what = "with scratch for as many threads as there are cores, which a team never exceeds"
*/
#include <omp.h>
extern "C" void dot(const T* x, const T* y, T* product, ACC* part, int n, int cores) {
    for (int t = 0; t < cores; t++) part[t * 16] = 0;
#pragma omp parallel
    {
        ACC sum = 0;
#pragma omp for
        for (int i = 0; i < n; i++) sum += load(x[i]) * load(y[i]);
        part[omp_get_thread_num() * 16] = sum;
    }
    ACC all = 0;
    for (int t = 0; t < cores; t++) all += part[t * 16];
    *product = store(all);
}
