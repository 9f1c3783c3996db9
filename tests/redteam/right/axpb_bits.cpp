/*! evo
[[launch]]
kernel = "axpb"
args = ["x", "b", "y", "alpha", "n"]
*/
/* redteam
operator = "axpb"
what = "through the bits of floats, a union and an aligned struct"
*/
#include <cstdint>
#include <cstring>
#include <limits>

struct alignas(16) Four {
    T v[4];
};

extern "C" void axpb(const T* x, const T* b, T* y, T alpha, int n) {
    static_assert(std::numeric_limits<T>::is_iec559);
    for (int i = 0; i < n; i += 4) {
        Four four{};
        for (int k = 0; k < 4 && i + k < n; k++) four.v[k] = alpha * x[i + k];
        for (int k = 0; k < 4 && i + k < n; k++) {
            std::uint32_t bits;
            std::memcpy(&bits, &four.v[k], sizeof bits);
            std::memcpy(&four.v[k], &bits, sizeof bits);
            y[i + k] = four.v[k] + b[i + k];
        }
    }
}
