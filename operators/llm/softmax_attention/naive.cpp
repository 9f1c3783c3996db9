/*! evo
[[buffer]]
name = "scores"
dtype = "ACC"
shape = ["queries", "keys"]

[[launch]]
kernel = "softmax_attention"
args = ["q", "k", "v", "y", "scores", "queries", "keys", "dim", "width"]
*/
#include <cmath>

extern "C" void softmax_attention(const T* q, const T* k, const T* v, T* y, ACC* scores, int queries, int keys,
                                  int dim, int width) {
    for (int i = 0; i < queries; i++) {
        for (int j = 0; j < keys; j++) {
            ACC sum = 0;
            for (int l = 0; l < dim; l++) sum += load(q[(long long)i * dim + l]) * load(k[(long long)j * dim + l]);
            scores[(long long)i * keys + j] = sum / std::sqrt(ACC(dim));
        }
        ACC* row = scores + (long long)i * keys;
        ACC largest = row[0];
        for (int j = 1; j < keys; j++) largest = row[j] > largest ? row[j] : largest;
        ACC total = 0;
        for (int j = 0; j < keys; j++) total += row[j] = std::exp(row[j] - largest);
        for (int j = 0; j < keys; j++) row[j] /= total;
        for (int j = 0; j < width; j++) {
            ACC sum = 0;
            for (int l = 0; l < keys; l++) sum += scores[(long long)i * keys + l] * load(v[(long long)l * width + j]);
            y[(long long)i * width + j] = store(sum);
        }
    }
}
