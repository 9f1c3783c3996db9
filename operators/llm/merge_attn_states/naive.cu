/*! evo
[tune]
BLOCK = [128, 32, 64, 256, 512, 1024]

[[launch]]
kernel = "merge_attn_states"
grid = ["tokens", "heads"]
block = ["BLOCK"]
args = ["v_a", "lse_a", "v_b", "lse_b", "v", "lse", "tokens", "heads", "size"]
*/

// One block per token and head.
extern "C" __global__ void merge_attn_states(const T* v_a, const ACC* lse_a, const T* v_b, const ACC* lse_b, T* v,
                                             ACC* lse, int tokens, int heads, int size) {
    int t = blockIdx.x, h = blockIdx.y;
    ACC a = lse_a[(long long)h * tokens + t], b = lse_b[(long long)h * tokens + t];
    ACC largest = a > b ? a : b;
    ACC weight_a = expf(a - largest), weight_b = expf(b - largest), total = weight_a + weight_b;
    long long row = ((long long)t * heads + h) * size;
    for (int i = threadIdx.x; i < size; i += blockDim.x)
        v[row + i] = store(weight_a / total * load(v_a[row + i]) + weight_b / total * load(v_b[row + i]));
    if (threadIdx.x == 0) lse[(long long)h * tokens + t] = largest + logf(total);
}
