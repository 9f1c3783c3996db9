/*! evo
[[launch]]
kernel = "axpb"
args = ["x", "b", "y", "alpha", "n"]
*/
/* redteam
operator = "axpb"
what = "through local arrays of a length known at run time only"
*/
#include <cstring>

extern "C" void axpb(const T* x, const T* b, T* y, T alpha, int n) {
    const int width = n < 2000 ? n : 2000;
    T local[width];
    T* other = static_cast<T*>(__builtin_alloca(sizeof(T) * width));
    for (int begin = 0; begin < n; begin += width) {
        const int count = n - begin < width ? n - begin : width;
        std::memcpy(local, x + begin, sizeof(T) * count);
        for (int i = 0; i < count; i++) other[i] = alpha * local[i] + b[begin + i];
        std::memmove(y + begin, other, sizeof(T) * count);
    }
}
