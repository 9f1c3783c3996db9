/*! evo
[[launch]]
kernel = "product"
grid = ["ceil_div(n, 8)", "ceil_div(m, 16)"]
block = [32]
args = ["a", "b", "c", "m", "n", "k"]
*/
/* redteam
operator = "matrix_mul"
dtypes = ["fp32"]
what = "three products on tensor cores for TF32, of numbers in two parts; one warp a tile"
*/
struct Parts {
    unsigned high, low, finite_high;
    __device__ explicit Parts(float value) {
        asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(high) : "f"(value));
        const bool finite = fabsf(value) <= 3.4e38f;
        const float rest = finite ? value - __uint_as_float(high) : 0.0f;
        asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(low) : "f"(rest));
        finite_high = finite ? high : 0;  // infinity times the rest of another number would be no number
    }
};

__device__ void multiply(float* c, unsigned a0, unsigned a1, unsigned a2, unsigned a3, unsigned b0, unsigned b1) {
    asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

extern "C" __global__ void product(const T* a, const T* b, T* c, int m, int n, int k) {
    const int row = blockIdx.y * 16 + threadIdx.x / 4, column = blockIdx.x * 8 + threadIdx.x / 4, t = threadIdx.x % 4;
    auto left = [&](int i, int l) { return Parts(i < m && l < k ? a[(long long)i * k + l] : 0.0f); };
    auto right = [&](int l, int j) { return Parts(j < n && l < k ? b[(long long)l * n + j] : 0.0f); };
    float large[4] = {}, small[4] = {};
    for (int l = 0; l < k; l += 8) {
        const Parts p = left(row, l + t), q = left(row + 8, l + t), r = left(row, l + t + 4), s = left(row + 8, l + t + 4);
        const Parts x = right(l + t, column), y = right(l + t + 4, column);
        multiply(large, p.high, q.high, r.high, s.high, x.high, y.high);
        multiply(small, p.low, q.low, r.low, s.low, x.finite_high, y.finite_high);
        multiply(small, p.finite_high, q.finite_high, r.finite_high, s.finite_high, x.low, y.low);
    }
    for (int e = 0; e < 4; e++) {
        const int i = row + e / 2 * 8, j = blockIdx.x * 8 + 2 * t + e % 2;
        if (i < m && j < n) c[(long long)i * n + j] = large[e] + small[e];
    }
}
