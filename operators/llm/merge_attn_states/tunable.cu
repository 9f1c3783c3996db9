/*! evo
[tune]
LANES = [32, 16, 64]
ROWS = [8, 4, 16]
EACH = [4, 1, 2, 8]

[[launch]]
kernel = "merge_attn_states"
grid = ["ceil_div(tokens * heads, ROWS)"]
block = ["LANES", "ROWS"]
args = ["v_a", "lse_a", "v_b", "lse_b", "v", "lse", "tokens", "heads", "size"]
*/

// ROWS pairs of token and head per block, LANES threads for each, which read EACH values before they write any.
extern "C" __global__ void __launch_bounds__(LANES * ROWS) merge_attn_states(const T* v_a, const ACC* lse_a,
                                             const T* v_b, const ACC* lse_b, T* v, ACC* lse, int tokens, int heads,
                                             int size) {
    int row = blockIdx.x * ROWS + threadIdx.y;
    if (row >= tokens * heads) return;
    long long at = (long long)(row % heads) * tokens + row / heads, first = (long long)row * size;
    ACC a = lse_a[at], b = lse_b[at], largest = a > b ? a : b;
    ACC weight_a = __expf(a - largest), weight_b = __expf(b - largest), total = weight_a + weight_b;
    weight_a /= total, weight_b /= total;
    for (int begin = threadIdx.x; begin < size; begin += LANES * EACH) {
        ACC merged[EACH];
#pragma unroll
        for (int e = 0; e < EACH; e++) {
            long long i = first + begin + e * LANES;
            if (begin + e * LANES < size) merged[e] = weight_a * load(v_a[i]) + weight_b * load(v_b[i]);
        }
#pragma unroll
        for (int e = 0; e < EACH; e++)
            if (begin + e * LANES < size) v[first + begin + e * LANES] = store(merged[e]);
    }
    if (threadIdx.x == 0) lse[at] = largest + __logf(total);
}
