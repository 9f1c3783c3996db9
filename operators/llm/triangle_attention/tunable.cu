/*! evo
[tune]
BLOCK_X = [64, 32, 128]
BLOCK_Y = [2, 1, 4]
QUERIES = [8, 2, 4, 16]

[[launch]]
kernel = "triangle_attention"
grid = ["ceil_div(width, BLOCK_X)", "ceil_div(length, BLOCK_Y * QUERIES)", "batch * heads"]
block = ["BLOCK_X", "BLOCK_Y"]
args = ["q", "k", "v", "mask", "y", "heads", "length", "width"]
*/
#include <cmath>

// A thread has a column of QUERIES neighbouring positions, so that keys and values are read once for all of them.
extern "C" __global__ void __launch_bounds__(BLOCK_X * BLOCK_Y) triangle_attention(const T* q, const T* k, const T* v,
                                             const T* mask, T* y, int heads, int length, int width) {
    int d = blockIdx.x * BLOCK_X + threadIdx.x, first = (blockIdx.y * BLOCK_Y + threadIdx.y) * QUERIES;
    if (d >= width || first >= length) return;
    long long head = (long long)blockIdx.z * length * width + d, rows = (long long)(blockIdx.z / heads) * length;
    int count = length - first < QUERIES ? length - first : QUERIES;
    ACC scale = ACC(1) / sqrtf(ACC(width)), query[QUERIES], largest[QUERIES], sum[QUERIES], total[QUERIES];
#pragma unroll
    for (int e = 0; e < QUERIES; e++) {
        query[e] = e < count ? load(q[head + (long long)(first + e) * width]) * scale : ACC(0);
        largest[e] = -INFINITY, sum[e] = total[e] = 0;
    }
    for (int j = 0; j < length; j++) {
        ACC key = load(k[head + (long long)j * width]);
#pragma unroll
        for (int e = 0; e < QUERIES; e++) {
            ACC score = query[e] * key;
            if (e < count && !(load(mask[(rows + first + e) * length + j]) > ACC(0.5)) && !(score <= largest[e]))
                largest[e] = score;
        }
    }
    for (int j = 0; j < length; j++) {
        ACC key = load(k[head + (long long)j * width]), value = load(v[head + (long long)j * width]);
#pragma unroll
        for (int e = 0; e < QUERIES; e++) {
            if (e >= count || load(mask[(rows + first + e) * length + j]) > ACC(0.5)) continue;
            ACC weight = __expf(query[e] * key - largest[e]);
            total[e] += weight;
            sum[e] += weight * value;
        }
    }
#pragma unroll
    for (int e = 0; e < QUERIES; e++)
        if (e < count) y[head + (long long)(first + e) * width] = store(sum[e] / total[e]);
}
