/*! evo
[tune]
BLOCK = [128, 32, 64, 256, 512, 1024]

[[launch]]
kernel = "triangle_attention"
grid = ["ceil_div(batch * heads * length * width, BLOCK)"]
block = ["BLOCK"]
args = ["q", "k", "v", "mask", "y", "batch", "heads", "length", "width"]
*/
#include <cmath>

// One thread per element of the result.
extern "C" __global__ void triangle_attention(const T* q, const T* k, const T* v, const T* mask, T* y, int batch,
                                              int heads, int length, int width) {
    long long at = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (at >= (long long)batch * heads * length * width) return;
    int d = at % width, i = at / width % length;
    long long head = at / width / length * length * width;
    const T* excluded = mask + (at / width / length / heads * length + i) * length;
    ACC root = sqrtf(ACC(width)), largest = -INFINITY;
    for (int j = 0; j < length; j++) {
        ACC score = load(q[at]) * load(k[head + (long long)j * width + d]) / root;
        if (!(load(excluded[j]) > ACC(0.5)) && !(score <= largest)) largest = score;
    }
    ACC sum = 0, total = 0;
    for (int j = 0; j < length; j++) {
        if (load(excluded[j]) > ACC(0.5)) continue;
        long long there = head + (long long)j * width + d;
        ACC weight = expf(load(q[at]) * load(k[there]) / root - largest);
        total += weight;
        sum += weight * load(v[there]);
    }
    y[at] = store(sum / total);
}
