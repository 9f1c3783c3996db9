/*! evo
[[buffer]]
name = "z"
dtype = "ACC"
shape = ["batch", "length", "length", "dim"]

[[buffer]]
name = "left"
dtype = "ACC"
shape = ["batch", "length", "length", "hidden"]

[[buffer]]
name = "right"
dtype = "ACC"
shape = ["batch", "length", "length", "hidden"]

[[buffer]]
name = "t"
dtype = "ACC"
shape = ["batch", "length", "length", "hidden"]

[[launch]]
kernel = "triangle_multiplication"
args = [
    "x", "mask", "norm_weight", "norm_bias", "left_weight", "right_weight", "left_gate", "right_gate", "out_gate",
    "out_norm_weight", "out_norm_bias", "out_weight", "y", "z", "left", "right", "t", "eps", "batch", "length", "dim",
    "hidden",
]
*/
#include <cmath>

static ACC sigmoid(ACC value) { return 1 / (1 + std::exp(-value)); }

static ACC product(const ACC* z, const T* weight, int dim) {
    ACC sum = 0;
    for (int c = 0; c < dim; c++) sum += z[c] * load(weight[c]);
    return sum;
}

template <class S> static void norm(const S* in, const T* weight, const T* bias, ACC* out, ACC eps, int count) {
    ACC sum = 0, squares = 0;
    for (int c = 0; c < count; c++) sum += ACC(in[c]);
    ACC mean = sum / count;
    for (int c = 0; c < count; c++) squares += (ACC(in[c]) - mean) * (ACC(in[c]) - mean);
    ACC scale = 1 / std::sqrt(squares / count + eps);
    for (int c = 0; c < count; c++) out[c] = load(weight[c]) * ((ACC(in[c]) - mean) * scale) + load(bias[c]);
}

extern "C" void triangle_multiplication(const T* x, const T* mask, const T* norm_weight, const T* norm_bias,
                                        const T* left_weight, const T* right_weight, const T* left_gate,
                                        const T* right_gate, const T* out_gate, const T* out_norm_weight,
                                        const T* out_norm_bias, const T* out_weight, T* y, ACC* z, ACC* left,
                                        ACC* right, ACC* t, ACC eps, int batch, int length, int dim, int hidden) {
    long long pairs = (long long)batch * length * length;
    for (long long p = 0; p < pairs; p++) {
        ACC* row = z + p * dim;
        norm(x + p * dim, norm_weight, norm_bias, row, eps, dim);
        for (int d = 0; d < hidden; d++) {
            long long w = (long long)d * dim;
            ACC kept = load(mask[p]);
            left[p * hidden + d] = kept * product(row, left_weight + w, dim) * sigmoid(product(row, left_gate + w, dim));
            right[p * hidden + d] = kept * product(row, right_weight + w, dim) * sigmoid(product(row, right_gate + w, dim));
        }
    }
    for (long long p = 0; p < pairs; p++) {
        long long i = p / length, j = p / length / length * length + p % length;
        ACC* row = t + p * hidden;
        for (int d = 0; d < hidden; d++) {
            ACC sum = 0;
            for (int k = 0; k < length; k++)
                sum += left[(i * length + k) * hidden + d] * right[(j * length + k) * hidden + d];
            row[d] = sum;
        }
        norm(row, out_norm_weight, out_norm_bias, row, eps, hidden);
        for (int d = 0; d < hidden; d++) row[d] *= sigmoid(product(z + p * dim, out_gate + (long long)d * dim, dim));
        for (int c = 0; c < dim; c++) y[p * dim + c] = store(product(row, out_weight + (long long)c * hidden, hidden));
    }
}
