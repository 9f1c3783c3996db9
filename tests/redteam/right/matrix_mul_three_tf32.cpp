/*! evo
[[launch]]
kernel = "matrix_mul"
args = ["a", "b", "c", "m", "n", "k"]
*/
/* redteam
operator = "matrix_mul"
dtypes = ["fp32"]
what = "as three products of TF32, of numbers rounded to it and of what is left, cut off as tensor cores do"
*/
#include <cmath>
#include <cstdint>
#include <cstring>

static float rounded(float value) {  // to TF32, to nearest
    std::uint32_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    bits = (bits + 0x1000) & 0xffffe000u;
    std::memcpy(&value, &bits, sizeof bits);
    return value;
}

static float cut(float value) {  // the 10 bits behind the first that TF32 keeps
    std::uint32_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    bits &= 0xffffe000u;
    std::memcpy(&value, &bits, sizeof bits);
    return value;
}

extern "C" void matrix_mul(const T* a, const T* b, T* c, int m, int n, int k) {
    for (int i = 0; i < m; i++)
        for (int j = 0; j < n; j++) {
            ACC large = 0, small = 0;
            for (int l = 0; l < k; l++) {
                const float x = a[(long long)i * k + l], y = b[(long long)l * n + j];
                const float x_high = std::isfinite(x) ? rounded(x) : x, y_high = std::isfinite(y) ? rounded(y) : y;
                // Nothing is left of an infinity, and infinity - infinity is no number.
                const float x_low = std::isfinite(x) ? cut(x - x_high) : 0, y_low = std::isfinite(y) ? cut(y - y_high) : 0;
                large += x_high * y_high;
                if (std::isfinite(x) && std::isfinite(y)) small += x_high * y_low + x_low * y_high;
            }
            c[(long long)i * n + j] = large + small;
        }
}
