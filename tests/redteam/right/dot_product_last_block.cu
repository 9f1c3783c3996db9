/*! evo
zero = ["done"]

[[buffer]]
name = "sums"
dtype = "ACC"
shape = [64]

[[buffer]]
name = "done"
dtype = "int32"
shape = [1]

[[launch]]
kernel = "dot_product"
grid = [64]
block = [128]
args = ["x", "y", "product", "sums", "done", "n"]
*/
/* redteam
operator = "dot_product"
what = "the block that comes last adds up, in the order of the blocks; compensated sums"
*/
struct Sum {
    ACC high = 0, low = 0;
    __device__ void add(ACC value) {  // Knuth's two-sum
        const ACC total = high + value, back = total - high;
        const ACC rest = (high - (total - back)) + (value - back);
        high = total;
        if (fabsf(total) <= 3e38f) low += rest;  // of an infinity no rest is left
    }
};

extern "C" __global__ void dot_product(const T* x, const T* y, ACC* product, ACC* sums, int* done, int n) {
    __shared__ ACC part[128];
    __shared__ bool last;
    Sum mine;
    for (int i = blockIdx.x * 128 + threadIdx.x; i < n; i += 64 * 128) mine.add(load(x[i]) * load(y[i]));
    part[threadIdx.x] = mine.high + mine.low;
    __syncthreads();
    if (threadIdx.x) return;
    Sum all;
    for (int t = 0; t < 128; t++) all.add(part[t]);
    sums[blockIdx.x] = all.high + all.low;
    __threadfence();
    last = atomicAdd(done, 1) == gridDim.x - 1;
    if (!last) return;
    __threadfence();
    Sum total;
    for (int b = 0; b < gridDim.x; b++) total.add(*(volatile ACC*)&sums[b]);
    *product = total.high + total.low;
}
