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
what = "six products on tensor cores for bf16, of numbers in three parts"
*/
// A number in three parts of bf16, two numbers a register.
struct Parts {
    unsigned part[3], finite;
};

__device__ unsigned packed(float x, float y) {
    unsigned both;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(y), "f"(x));
    return both;
}
__device__ float lower(unsigned both) { return __uint_as_float(both << 16); }
__device__ float upper(unsigned both) { return __uint_as_float(both & 0xffff0000u); }
__device__ float rest(float value, float part) { return fabsf(value) <= 3.3e38f ? value - part : 0.0f; }

__device__ Parts split(float x, float y) {
    Parts found;
    found.part[0] = packed(x, y);
    found.finite = packed(fabsf(x) <= 3.3e38f ? x : 0.0f, fabsf(y) <= 3.3e38f ? y : 0.0f);
    x = rest(x, lower(found.part[0])), y = rest(y, upper(found.part[0]));
    found.part[1] = packed(x, y);
    found.part[2] = packed(x - lower(found.part[1]), y - upper(found.part[1]));
    return found;
}

__device__ void multiply(float* c, unsigned a0, unsigned a1, unsigned a2, unsigned a3, unsigned b0, unsigned b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

// Six products of parts; those of infinities only with the highest ones.
__device__ void multiply(float (*sums)[4], const Parts* a, const Parts* b) {
    multiply(sums[0], a[0].part[0], a[1].part[0], a[2].part[0], a[3].part[0], b[0].part[0], b[1].part[0]);
    for (int i = 0; i < 3; i++)
        for (int j = i == 0; i + j < 3; j++) {
            auto x = [&](int e) { return i ? a[e].part[i] : a[e].finite; };
            auto y = [&](int e) { return j ? b[e].part[j] : b[e].finite; };
            multiply(sums[i + j], x(0), x(1), x(2), x(3), y(0), y(1));
        }
}

template <class Out> __device__ void tile(const float* a, const float* b, Out* c, int m, int n, int k) {
    const int row = blockIdx.y * 16 + threadIdx.x / 4, column = blockIdx.x * 8 + threadIdx.x / 4, t = threadIdx.x % 4;
    auto left = [&](int i, int l) { return i < m && l < k ? a[(long long)i * k + l] : 0.0f; };
    auto right = [&](int l, int j) { return j < n && l < k ? b[(long long)l * n + j] : 0.0f; };
    float sums[3][4] = {};
    for (int l = 2 * t; l < k + 2 * t; l += 16) {
        const Parts x[4] = {split(left(row, l), left(row, l + 1)), split(left(row + 8, l), left(row + 8, l + 1)),
                            split(left(row, l + 8), left(row, l + 9)), split(left(row + 8, l + 8), left(row + 8, l + 9))};
        const Parts y[2] = {split(right(l, column), right(l + 1, column)), split(right(l + 8, column), right(l + 9, column))};
        multiply(sums, x, y);
    }
    for (int e = 0; e < 4; e++) {
        const int i = row + e / 2 * 8, j = blockIdx.x * 8 + 2 * t + e % 2;
        if (i < m && j < n) c[(long long)i * n + j] = sums[0][e] + (sums[1][e] + sums[2][e]);
    }
}

extern "C" __global__ void product(const T* a, const T* b, T* c, int m, int n, int k) { tile(a, b, c, m, n, k); }
