/*! evo
[[buffer]]
name = "keys"
dtype = "int32"
shape = [2, "n"]

[[launch]]
kernel = "sort"
args = ["x", "keys", "n"]
*/
/* redteam
operator = "sorting"
dtypes = ["fp32"]
what = "by digits of the bits, eight at a time"
*/
#include <cstdint>
#include <cstring>
extern "C" void sort(T* x, int* keys, int n) {
    std::uint32_t *from = (std::uint32_t*)keys, *to = from + n;
    for (int i = 0; i < n; i++) {
        std::memcpy(&from[i], &x[i], 4);
        from[i] ^= (std::uint32_t)((std::int32_t)from[i] >> 31) | 0x80000000u;
    }
    for (int shift = 0; shift < 32; shift += 8) {
        int starts[257] = {};
        for (int i = 0; i < n; i++) starts[(from[i] >> shift & 255) + 1]++;
        for (int d = 0; d < 256; d++) starts[d + 1] += starts[d];
        for (int i = 0; i < n; i++) to[starts[from[i] >> shift & 255]++] = from[i];
        std::uint32_t* swapped = from;
        from = to, to = swapped;
    }
    for (int i = 0; i < n; i++) {
        from[i] ^= from[i] >> 31 ? 0x80000000u : 0xffffffffu;
        std::memcpy(&x[i], &from[i], 4);
    }
}
