/*! evo
[[launch]]
kernel = "four"
when = "n % 8 == 0"
grid = ["ceil_div(n * sizeof_T // 16, 128)"]
block = [128]
args = ["x", "y", "n * sizeof_T // 16"]

[[launch]]
kernel = "one"
when = "n % 8 != 0"
grid = ["ceil_div(n, 7)"]
block = [7]
args = ["x", "y", "n"]
*/
/* redteam
operator = "gelu"
what = "asynchronous copies to shared memory, or blocks of seven threads"
*/
#include <cuda_pipeline.h>
__device__ T gelu(T x) { return store(ACC(0.5) * load(x) * (ACC(1) + erff(load(x) * ACC(0.70710678118654752440)))); }

struct alignas(16) Some { T v[16 / sizeof(T)]; };

extern "C" __global__ void four(const Some* x, Some* y, int count) {
    __shared__ Some tile[128];
    const int i = blockIdx.x * 128 + threadIdx.x;
    if (i < count) __pipeline_memcpy_async(&tile[threadIdx.x], &x[i], 16);
    __pipeline_commit();
    __pipeline_wait_prior(0);
    if (i >= count) return;
    for (T& v : tile[threadIdx.x].v) v = gelu(v);
    y[i] = tile[threadIdx.x];
}

extern "C" __global__ void one(const T* x, T* y, int n) {
    const int i = blockIdx.x * 7 + threadIdx.x;
    if (i < n) y[i] = gelu(x[i]);
}
