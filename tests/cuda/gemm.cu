/*! evo
requires = "n % 8 == 0 and k % 8 == 0"

[[launch]]
kernel = "gemm"
grid = ["ceil_div(n, 64)", "ceil_div(m, 64)"]
block = [128]
args = ["a", "b", "c", "m", "n", "k"]
*/
// bf16: tiles of 64 x 64 x 32 in two stages of shared memory, four warps with 32 x 32 results each.
constexpr int DEPTH = 32, PITCH_A = DEPTH + 8, PITCH_B = 64 + 8;

struct alignas(16) Stage { T a[64][PITCH_A], b[DEPTH][PITCH_B]; };

__device__ __forceinline__ unsigned address(const void* at) { return static_cast<unsigned>(__cvta_generic_to_shared(at)); }
__device__ __forceinline__ void copy(void* to, const T* from, bool inside) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(address(to)), "l"(from), "r"(inside ? 16 : 0) : "memory");
}
__device__ __forceinline__ void load_a(unsigned (&d)[4], const T* row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3]) : "r"(address(row)));
}
__device__ __forceinline__ void load_b(unsigned (&d)[4], const T* row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3]) : "r"(address(row)));
}
__device__ __forceinline__ void multiply(float (&d)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

__device__ __forceinline__ void fetch(Stage& stage, const T* a, const T* b, int row, int column, int at, int m, int n, int k) {
    for (int i = threadIdx.x; i < 64 * DEPTH / 8; i += 128) {
        const int y = i / (DEPTH / 8), x = i % (DEPTH / 8) * 8;
        const bool inside = row + y < m && at + x < k;
        copy(&stage.a[y][x], inside ? a + (long long)(row + y) * k + at + x : a, inside);
    }
    for (int i = threadIdx.x; i < DEPTH * 64 / 8; i += 128) {
        const int y = i / 8, x = i % 8 * 8;
        const bool inside = at + y < k && column + x < n;
        copy(&stage.b[y][x], inside ? b + (long long)(at + y) * n + column + x : b, inside);
    }
    asm volatile("cp.async.commit_group;" ::: "memory");
}

extern "C" __global__ void __launch_bounds__(128) gemm(const T* a, const T* b, T* c, int m, int n, int k) {
    __shared__ Stage stages[2];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, row = blockIdx.y * 64, column = blockIdx.x * 64;
    const int down = warp / 2 * 32, right = warp % 2 * 32;
    float sums[2][4][4] = {};
    const int steps = (k + DEPTH - 1) / DEPTH;
    fetch(stages[0], a, b, row, column, 0, m, n, k);
    for (int step = 0; step < steps; step++) {
        if (step + 1 < steps) {
            fetch(stages[(step + 1) % 2], a, b, row, column, (step + 1) * DEPTH, m, n, k);
            asm volatile("cp.async.wait_group 1;" ::: "memory");
        } else {
            asm volatile("cp.async.wait_group 0;" ::: "memory");
        }
        __syncthreads();
        const Stage& stage = stages[step % 2];
        for (int at = 0; at < DEPTH; at += 16) {
            unsigned left[2][4], top[2][4];
            for (int i = 0; i < 2; i++) {
                load_a(left[i], &stage.a[down + 16 * i + lane % 16][at + lane / 16 * 8]);
                load_b(top[i], &stage.b[at + lane % 16][right + 16 * i + lane / 16 * 8]);
            }
            for (int i = 0; i < 2; i++)
                for (int j = 0; j < 4; j++) multiply(sums[i][j], left[i], top[j / 2][j % 2 * 2], top[j / 2][j % 2 * 2 + 1]);
        }
        __syncthreads();
    }
    for (int i = 0; i < 2; i++)
        for (int j = 0; j < 4; j++)
            for (int l = 0; l < 4; l++) {
                const int y = row + down + 16 * i + lane / 4 + l / 2 * 8, x = column + right + 8 * j + lane % 4 * 2 + l % 2;
                if (y < m && x < n) c[(long long)y * n + x] = store(sums[i][j][l]);
            }
}
