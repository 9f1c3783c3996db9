/*! evo
[[launch]]
kernel = "matrix_mul"
args = ["a", "b", "c", "m", "n", "k"]
*/
/* redteam
operator = "matrix_mul"
dtypes = ["fp32"]
what = "as six products of bf16, of numbers in three parts, the smallest added up first"
*/
#include <cmath>
#include <cstdint>
#include <cstring>

static float rounded(float value) {  // to bf16, to nearest
    std::uint32_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    bits += 0x7fff + ((bits >> 16) & 1);
    bits &= 0xffff0000u;
    std::memcpy(&value, &bits, sizeof bits);
    return value;
}

struct Parts {
    float high, middle, low;
    explicit Parts(float value) : high(value), middle(0), low(0) {
        if (!std::isfinite(value)) return;
        high = rounded(value);
        middle = rounded(value - high);
        low = rounded(value - high - middle);
    }
};

extern "C" void matrix_mul(const T* a, const T* b, T* c, int m, int n, int k) {
    for (int i = 0; i < m; i++)
        for (int j = 0; j < n; j++) {
            ACC large = 0, medium = 0, small = 0;
            for (int l = 0; l < k; l++) {
                const Parts x(a[(long long)i * k + l]), y(b[(long long)l * n + j]);
                large += x.high * y.high;
                if (!std::isfinite(x.high) || !std::isfinite(y.high)) continue;
                medium += x.high * y.middle + x.middle * y.high;
                small += x.high * y.low + x.middle * y.middle + x.low * y.high;
            }
            c[(long long)i * n + j] = large + (medium + small);
        }
}
