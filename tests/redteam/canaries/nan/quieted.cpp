/*! evo
[[launch]]
kernel = "copy"
args = ["x", "y", "rows", "cols"]
*/
/* redteam
operator = "matrix_copy"
tries = "sets the bit that makes a signalling NaN a quiet one, as arithmetic does"
expect = "caught"
says = "bit by bit"
*/
#include <cmath>
#include <cstdint>
#include <cstring>
extern "C" void copy(const T* x, T* y, int rows, int cols) {
    for (long long i = 0; i < (long long)rows * cols; i++) {
        std::uint32_t bits;
        std::memcpy(&bits, &x[i], sizeof bits);
        if (std::isnan(x[i])) bits |= 0x00400000u;
        std::memcpy(&y[i], &bits, sizeof bits);
    }
}
