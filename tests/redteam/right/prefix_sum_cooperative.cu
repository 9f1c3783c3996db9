/*! evo
[[buffer]]
name = "sums"
dtype = "ACC"
shape = ["sm_count"]

[[launch]]
kernel = "scan"
cooperative = true
grid = ["sm_count"]
block = [1]
args = ["x", "y", "sums", "n"]
*/
/* redteam
operator = "prefix_sum"
what = "blocks of one thread that wait for each other in the middle of a launch"
*/
#include <cooperative_groups.h>
extern "C" __global__ void scan(const T* x, T* y, ACC* sums, int n) {
    const int share = (n + gridDim.x - 1) / gridDim.x, begin = blockIdx.x * share, end = min(begin + share, n);
    ACC sum = 0;
    for (int i = begin; i < end; i++) sum += load(x[i]);
    sums[blockIdx.x] = sum;
    cooperative_groups::this_grid().sync();
    sum = 0;
    for (int b = 0; b < blockIdx.x; b++) sum += sums[b];
    for (int i = begin; i < end; i++) y[i] = store(sum += load(x[i]));
}
