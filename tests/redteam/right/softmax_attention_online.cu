/*! evo
[[launch]]
kernel = "attend"
grid = ["queries"]
block = [32]
args = ["q", "k", "v", "y", "keys", "dim", "width"]
*/
/* redteam
operator = "softmax_attention"
what = "one key after the other, sums scaled anew with every larger score; a warp a query"
*/
extern "C" __global__ void attend(const T* q, const T* k, const T* v, T* y, int keys, int dim, int width) {
    for (int from = 0; from < width; from += 32) {
        const int c = from + threadIdx.x;
        ACC largest = __int_as_float(0xff800000), total = 0, sum = 0;
        for (int j = 0; j < keys; j++) {
            ACC score = 0;
            for (int l = threadIdx.x; l < dim; l += 32)
                score += load(q[(long long)blockIdx.x * dim + l]) * load(k[(long long)j * dim + l]);
            for (int d = 16; d; d /= 2) score += __shfl_xor_sync(~0u, score, d);
            score /= sqrtf(ACC(dim));
            const ACC above = score > largest || score != score ? score : largest;
            const ACC less = expf(largest - above), weight = expf(score - above);
            largest = above;
            total = total * less + weight;
            if (c < width) sum = sum * less + weight * load(v[(long long)j * width + c]);
        }
        if (c < width) y[(long long)blockIdx.x * width + c] = store(sum / total);
    }
}
