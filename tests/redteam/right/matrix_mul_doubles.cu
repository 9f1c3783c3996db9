/*! evo
[[launch]]
kernel = "product"
grid = ["m"]
block = [96]
args = ["a", "b", "c", "m", "n", "k"]
*/
/* redteam
operator = "matrix_mul"
what = "sums in fp64, a block a row, three warps"
*/
extern "C" __global__ void product(const T* a, const T* b, T* c, int m, int n, int k) {
    for (int j = threadIdx.x; j < n; j += 96) {
        double sum = 0;
        for (int l = k - 1; l >= 0; l--)
            sum += double(load(a[(long long)blockIdx.x * k + l])) * double(load(b[(long long)l * n + j]));
        c[(long long)blockIdx.x * n + j] = store(ACC(sum));
    }
}
