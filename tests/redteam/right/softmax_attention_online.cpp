/*! evo
[[buffer]]
name = "sums"
dtype = "ACC"
shape = ["width"]

[[launch]]
kernel = "attend"
args = ["q", "k", "v", "y", "sums", "queries", "keys", "dim", "width"]
*/
/* redteam
operator = "softmax_attention"
what = "one key after the other, sums scaled anew with every larger score"
*/
#include <cmath>

extern "C" void attend(const T* q, const T* k, const T* v, T* y, ACC* sums, int queries, int keys, int dim, int width) {
    for (int i = 0; i < queries; i++) {
        ACC largest = -INFINITY, total = 0;
        for (int c = 0; c < width; c++) sums[c] = 0;
        for (int j = 0; j < keys; j++) {
            ACC score = 0;
            for (int l = 0; l < dim; l++) score += q[(long long)i * dim + l] * k[(long long)j * dim + l];
            score /= std::sqrt(ACC(dim));
            const ACC above = score > largest || score != score ? score : largest;
            const ACC less = std::exp(largest - above), weight = std::exp(score - above);
            largest = above;
            total = total * less + weight;
            for (int c = 0; c < width; c++) sums[c] = sums[c] * less + weight * v[(long long)j * width + c];
        }
        for (int c = 0; c < width; c++) y[(long long)i * width + c] = sums[c] / total;
    }
}
