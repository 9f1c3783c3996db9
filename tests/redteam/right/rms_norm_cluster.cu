/*! evo
[[launch]]
kernel = "rms_norm"
grid = ["4 * rows"]
block = [64]
cluster = [4]
args = ["x", "weight", "bias", "y", "eps", "cols"]
*/
/* redteam
operator = "rms_norm"
what = "four blocks of a cluster a row, which read each other's shared memory"
*/
#include <cooperative_groups.h>
namespace cg = cooperative_groups;
extern "C" __global__ void rms_norm(const T* x, const T* weight, const T* bias, T* y, ACC eps, int cols) {
    __shared__ ACC part[64];
    cg::cluster_group cluster = cg::this_cluster();
    const int rank = cluster.block_rank(), first = rank * 64 + threadIdx.x;
    const T* in = x + (long long)(blockIdx.x / 4) * cols;
    ACC sum = 0;
    for (int c = first; c < cols; c += 256) sum += load(in[c]) * load(in[c]);
    part[threadIdx.x] = sum;
    cluster.sync();
    sum = 0;
    for (int block = 0; block < 4; block++) {
        const ACC* other = cluster.map_shared_rank(part, block);
        for (int t = 0; t < 64; t++) sum += other[t];
    }
    const ACC scale = 1 / sqrtf(sum / cols + eps);
    for (int c = first; c < cols; c += 256)
        y[(long long)(blockIdx.x / 4) * cols + c] = store(load(weight[c]) * load(in[c]) * scale + load(bias[c]));
    cluster.sync();
}
