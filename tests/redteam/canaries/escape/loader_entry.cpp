/*! evo
[[launch]]
kernel = "axpb"
args = ["x", "b", "y", "alpha", "n"]
*/
/* redteam
operator = "axpb"
tries = "adds an entry to the loader's list of what to do with the library"
expect = "structural"
says = "in the section"
needs = ["sled"]
machine = "x86_64"
*/
static constexpr unsigned char trap[] = {0x0F, 0x0B};
EVO_SLED(trap);
struct Entry { long tag, value; };
__attribute__((section(".dynamic"), used)) static const Entry hook[] = {{12, 0x5000}};

extern "C" void axpb(const T* x, const T* b, T* y, T alpha, int n) {
    for (int i = 0; i < n; i++) y[i] = alpha * x[i] + b[i];
}
