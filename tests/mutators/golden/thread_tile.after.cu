/*! evo
[tune]
BLOCK_X = [16, 8, 32, 64]
BLOCK_Y = [16, 2, 4, 8]
PER_I = [4, 1, 2, 8]
PER_J = [4, 1, 2, 8]

[[launch]]
kernel = "matrix_mul"
grid = ["ceil_div(ceil_div(n, BLOCK_X), PER_J)", "ceil_div(ceil_div(m, BLOCK_Y), PER_I)"]
block = ["BLOCK_X", "BLOCK_Y"]
args = ["a", "b", "c", "m", "n", "k"]
*/

// One thread per element of the result.
extern "C" __global__ void matrix_mul(const T* a, const T* b, T* c, int m, int n, int k) {
    int i0 = blockIdx.y * blockDim.y * PER_I + threadIdx.y;
    int j0 = blockIdx.x * blockDim.x * PER_J + threadIdx.x;
    if (i0 >= m || j0 >= n) return;
    ACC sum_tile[PER_I][PER_J];
    #pragma unroll
    for (int i_step = 0; i_step < PER_I; i_step++) {
        #pragma unroll
        for (int j_step = 0; j_step < PER_J; j_step++) {
            const int i = i0 + i_step * int(blockDim.y) < m ? i0 + i_step * int(blockDim.y) : int(m - 1);
            const int j = j0 + j_step * int(blockDim.x) < n ? j0 + j_step * int(blockDim.x) : int(n - 1);
            sum_tile[i_step][j_step] = 0;
        }
    }
    for (int l = 0; l < k; l++) {
        #pragma unroll
        for (int i_step = 0; i_step < PER_I; i_step++) {
            #pragma unroll
            for (int j_step = 0; j_step < PER_J; j_step++) {
                const int i = i0 + i_step * int(blockDim.y) < m ? i0 + i_step * int(blockDim.y) : int(m - 1);
                const int j = j0 + j_step * int(blockDim.x) < n ? j0 + j_step * int(blockDim.x) : int(n - 1);
                sum_tile[i_step][j_step] += load(a[(long long)i * k + l]) * load(b[(long long)l * n + j]);
            }
        }
    }
    #pragma unroll
    for (int i_step = 0; i_step < PER_I; i_step++) {
        #pragma unroll
        for (int j_step = 0; j_step < PER_J; j_step++) {
            const int i = i0 + i_step * int(blockDim.y);
            const int j = j0 + j_step * int(blockDim.x);
            if (i < m && j < n) {
                c[(long long)i * n + j] = store(sum_tile[i_step][j_step]);
            }
        }
    }
}
