/*! evo
[[launch]]
kernel = "axpb"
args = ["x", "b", "y", "alpha", "n"]
*/
/* redteam
operator = "axpb"
tries = "makes the table of its parameters say that there are a billion"
expect = "structural"
says = "table of its parameters"
*/
namespace evo_shim {
struct Lie {
    int words[8];
};
constexpr Lie lie() { return {{1 << 30}}; }
}  // namespace evo_shim
#define parameters(...) lie()

extern "C" void axpb(const T* x, const T* b, T* y, T alpha, int n) {
    for (int i = 0; i < n; i++) y[i] = alpha * x[i] + b[i];
}
