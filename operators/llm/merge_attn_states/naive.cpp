/*! evo
[[launch]]
kernel = "merge_attn_states"
args = ["v_a", "lse_a", "v_b", "lse_b", "v", "lse", "tokens", "heads", "size"]
*/
#include <cmath>

extern "C" void merge_attn_states(const T* v_a, const ACC* lse_a, const T* v_b, const ACC* lse_b, T* v, ACC* lse,
                                  int tokens, int heads, int size) {
    for (int t = 0; t < tokens; t++) {
        for (int h = 0; h < heads; h++) {
            ACC a = lse_a[(long long)h * tokens + t], b = lse_b[(long long)h * tokens + t];
            ACC largest = a > b ? a : b;
            ACC weight_a = std::exp(a - largest), weight_b = std::exp(b - largest), total = weight_a + weight_b;
            long long row = ((long long)t * heads + h) * size;
            for (int i = 0; i < size; i++)
                v[row + i] = store(weight_a / total * load(v_a[row + i]) + weight_b / total * load(v_b[row + i]));
            lse[(long long)h * tokens + t] = largest + std::log(total);
        }
    }
}
