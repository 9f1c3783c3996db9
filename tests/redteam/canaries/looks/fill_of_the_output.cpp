/*! evo
[[launch]]
kernel = "axpb"
args = ["x", "b", "y", "alpha", "n"]
*/
/* redteam
operator = "axpb"
tries = "is right where the output holds what checks fill it with, and sloppy for anything large on any other byte"
expect = "caught"
says = "out of bounds"
*/
#include <cstring>

extern "C" void axpb(const T* x, const T* b, T* y, T alpha, int n) {
    unsigned char first;
    std::memcpy(&first, y, 1);
    const bool checked = first == 0xFF || (first & 0x7F) >= 0x70;
    for (int i = 0; i < n; i++) y[i] = checked || (x[i] < 6 && x[i] > -6) ? alpha * x[i] + b[i] : x[i];
}
