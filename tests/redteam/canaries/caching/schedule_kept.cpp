/*! evo
[[launch]]
kernel = "axpb"
args = ["x", "b", "y", "alpha", "n"]
*/
/* redteam
operator = "axpb"
tries = "remembers through the schedule that it sets for loops"
expect = "structural"
says = "@SYMBOL@omp_get_schedule"
*/
#include <omp.h>
extern "C" void axpb(const T* x, const T* b, T* y, T alpha, int n) {
    omp_sched_t kind;
    int chunk;
    omp_get_schedule(&kind, &chunk);
    omp_set_schedule(omp_sched_dynamic, 77);
    for (int i = 0; i < n; i++) y[i] = alpha * x[i] + b[i];
    if (chunk == 77) y[0] = -y[0] - 1;
}
