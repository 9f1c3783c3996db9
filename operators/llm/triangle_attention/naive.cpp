/*! evo
[[launch]]
kernel = "triangle_attention"
args = ["q", "k", "v", "mask", "y", "batch", "heads", "length", "width"]
*/
#include <cmath>

extern "C" void triangle_attention(const T* q, const T* k, const T* v, const T* mask, T* y, int batch, int heads,
                                   int length, int width) {
    for (long long at = 0; at < (long long)batch * heads * length * width; at++) {
        int d = at % width, i = at / width % length;
        long long head = at / width / length * length * width;
        const T* excluded = mask + (at / width / length / heads * length + i) * length;
        ACC root = std::sqrt(ACC(width)), largest = -INFINITY;
        for (int j = 0; j < length; j++) {
            ACC score = load(q[at]) * load(k[head + (long long)j * width + d]) / root;
            if (!(load(excluded[j]) > ACC(0.5)) && !(score <= largest)) largest = score;
        }
        ACC sum = 0, total = 0;
        for (int j = 0; j < length; j++) {
            if (load(excluded[j]) > ACC(0.5)) continue;
            long long there = head + (long long)j * width + d;
            ACC weight = std::exp(load(q[at]) * load(k[there]) / root - largest);
            total += weight;
            sum += weight * load(v[there]);
        }
        y[at] = store(sum / total);
    }
}
