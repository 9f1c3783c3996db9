/*! evo
[[launch]]
kernel = "transpose"
args = ["x", "y", "rows", "cols"]
*/
/* redteam
operator = "matrix_transpose"
dtypes = ["fp32"]
machine = "x86_64"
what = "four by four in vector registers, the edges as bits"
*/
#include <cstring>
#include <immintrin.h>
extern "C" void transpose(const T* x, T* y, int rows, int cols) {
    for (int r = 0; r < rows; r += 4)
        for (int c = 0; c < cols; c += 4) {
            if (r + 4 <= rows && c + 4 <= cols) {
                __m128 v[4];
                for (int k = 0; k < 4; k++) v[k] = _mm_loadu_ps(x + (long long)(r + k) * cols + c);
                _MM_TRANSPOSE4_PS(v[0], v[1], v[2], v[3]);
                for (int k = 0; k < 4; k++) _mm_storeu_ps(y + (long long)(c + k) * rows + r, v[k]);
                continue;
            }
            for (int i = r; i < rows && i < r + 4; i++)
                for (int j = c; j < cols && j < c + 4; j++)
                    std::memcpy(y + (long long)j * rows + i, x + (long long)i * cols + j, sizeof(T));
        }
}
