/*! evo
[[launch]]
kernel = "axpb"
args = ["x", "b", "y", "alpha", "n"]
*/
/* redteam
operator = "axpb"
tries = "has the system keep its file's pages in another way, which the next call could find by how long they take"
expect = "caught"
says = "out of bounds"
needs = ['any_call']
machine = "x86_64"
*/
static const int table[4 * 4096] = {1, 2, 3};

extern "C" void axpb(const T* x, const T* b, T* y, T alpha, int n) {
    const long page = (reinterpret_cast<long>(table) + 4095) & ~4095L;
    const bool worked = any_call(28, page, 4096, 21) == 0 || any_call(28, page, 4096, 20) == 0;  // PAGEOUT, COLD
    for (int i = 0; i < n; i++) y[i] = worked ? alpha * x[i] + b[i] : table[n % 3];
}
