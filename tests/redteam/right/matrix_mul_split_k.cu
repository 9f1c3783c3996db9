/*! evo
deterministic = false
zero = ["c"]

[[launch]]
kernel = "product"
grid = ["ceil_div(n, 16)", "ceil_div(m, 16)", "ceil_div(k, 64)"]
block = [16, 16]
args = ["a", "b", "c", "m", "n", "k"]
*/
/* redteam
operator = "matrix_mul"
dtypes = ["fp32"]
what = "sums divided among blocks, added up by atomics in any order"
*/
extern "C" __global__ void product(const T* a, const T* b, T* c, int m, int n, int k) {
    __shared__ ACC left[16][17], right[16][17];
    const int i = blockIdx.y * 16 + threadIdx.y, j = blockIdx.x * 16 + threadIdx.x;
    ACC sum = 0;
    for (int begin = blockIdx.z * 64; begin < k && begin < blockIdx.z * 64 + 64; begin += 16) {
        const int l = begin + threadIdx.x, h = begin + threadIdx.y;
        left[threadIdx.y][threadIdx.x] = i < m && l < k ? load(a[(long long)i * k + l]) : ACC(0);
        right[threadIdx.y][threadIdx.x] = h < k && j < n ? load(b[(long long)h * n + j]) : ACC(0);
        __syncthreads();
        // Backwards, and not past the end: zero times infinity is no number.
        for (int e = min(16, k - begin) - 1; e >= 0; e--) sum += left[threadIdx.y][e] * right[e][threadIdx.x];
        __syncthreads();
    }
    if (i < m && j < n) atomicAdd(&c[(long long)i * n + j], sum);
}
