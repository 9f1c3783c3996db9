/*! evo
[[launch]]
kernel = "matrix_mul"
args = ["a", "b", "c", "m", "n", "k"]
*/
/* redteam
operator = "matrix_mul"
tries = "rounds the factors to TF32"
expect = "caught"
says = "out of bounds"
*/
#include <cstring>

static float tf32(float v) {
    unsigned bits;
    std::memcpy(&bits, &v, 4);
    bits = (bits + (1u << 12)) & ~((1u << 13) - 1);
    std::memcpy(&v, &bits, 4);
    return v;
}

extern "C" void matrix_mul(const T* a, const T* b, T* c, int m, int n, int k) {
    for (int i = 0; i < m; i++)
        for (int j = 0; j < n; j++) {
            ACC sum = 0;
            for (int l = 0; l < k; l++) sum += tf32(a[i * k + l]) * tf32(b[l * n + j]);
            c[i * n + j] = sum;
        }
}
