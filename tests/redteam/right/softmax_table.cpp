/*! evo
[[launch]]
kernel = "softmax"
args = ["x", "y", "rows", "cols"]
*/
/* redteam
operator = "softmax"
what = "with an exponential of its own: a table of 2^(j/32) and a polynomial, in double precision"
*/
#include <cmath>
#include <cstdint>
#include <cstring>

static const double POWERS[32] = {
    1.0, 1.0218971486541166, 1.0442737824274138, 1.0671404006768237,
    1.0905077326652577, 1.1143867425958924, 1.1387886347566916, 1.1637248587775775,
    1.189207115002721, 1.215247359980469, 1.241857812073484, 1.2690509571917332,
    1.2968395546510096, 1.3252366431597413, 1.3542555469368927, 1.383909881963832,
    1.4142135623730951, 1.4451808069770467, 1.4768261459394993, 1.5091644275934228,
    1.5422108254079407, 1.5759808451078865, 1.6104903319492543, 1.645755478153965,
    1.681792830507429, 1.718619298122478, 1.7562521603732995, 1.7947090750031072,
    1.8340080864093424, 1.8741676341103, 1.9152065613971474, 1.9571441241754002
};

static inline double exponential(double v) {
    if (v < -700) return 0;
    const double scaled = v * (32 / 0.693147180559945309417), whole = std::floor(scaled + 0.5);
    const double rest = (scaled - whole) * (0.693147180559945309417 / 32);
    const auto index = static_cast<std::int64_t>(whole);
    std::int64_t bits = ((index >> 5) + 1023) << 52;
    double power;
    std::memcpy(&power, &bits, sizeof power);
    return power * POWERS[index & 31] * (1 + rest * (1 + rest * (0.5 + rest * (1.0 / 6 + rest / 24))));
}

extern "C" void softmax(const T* x, T* y, int rows, int cols) {
    for (int r = 0; r < rows; r++) {
        const T* in = x + (long long)r * cols;
        T* out = y + (long long)r * cols;
        double largest = in[0], sum = 0;
        for (int c = 1; c < cols; c++) largest = std::fmax(largest, in[c]);
        for (int c = 0; c < cols; c++) sum += exponential(in[c] - largest);
        for (int c = 0; c < cols; c++) out[c] = static_cast<T>(exponential(in[c] - largest) / sum);
    }
}
