/*! evo
zero = ["state"]

[[buffer]]
name = "state"
dtype = "int32"
shape = ["ceil_div(n, 256) + 1"]

[[buffer]]
name = "sums"
dtype = "ACC"
shape = ["ceil_div(n, 256)", 2]

[[launch]]
kernel = "scan"
grid = ["ceil_div(n, 256)"]
block = [256]
args = ["x", "y", "state", "sums", "n"]
*/
/* redteam
operator = "prefix_sum"
what = "one pass: blocks take tickets, and wait for the sums of those before them, which come as they come"
*/
extern "C" __global__ void scan(const T* x, T* y, int* state, ACC* sums, int n) {
    __shared__ ACC part[256];
    __shared__ ACC before;
    __shared__ int ticket;
    if (threadIdx.x == 0) ticket = atomicAdd(&state[gridDim.x], 1);
    __syncthreads();
    const int block = ticket, i = block * 256 + threadIdx.x;
    part[threadIdx.x] = i < n ? load(x[i]) : ACC(0);
    for (int d = 1; d < 256; d *= 2) {
        __syncthreads();
        const ACC other = threadIdx.x >= d ? part[threadIdx.x - d] : ACC(0);
        __syncthreads();
        part[threadIdx.x] += other;
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        // What each block adds is always added up from the first one on, so that results do not depend on who is late.
        ACC sum = 0;
        if (block) {
            while (atomicAdd(&state[block - 1], 0) == 0) {}
            __threadfence();
            sum = *(volatile ACC*)&sums[2 * (block - 1)];
        }
        before = sum;
        *(volatile ACC*)&sums[2 * block] = sum + part[255];
        *(volatile ACC*)&sums[2 * block + 1] = part[255];
        __threadfence();
        atomicExch(&state[block], 1);
    }
    __syncthreads();
    if (i < n) y[i] = store(before + part[threadIdx.x]);
}
