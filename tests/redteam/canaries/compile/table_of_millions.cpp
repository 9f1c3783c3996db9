/*! evo
[[launch]]
kernel = "axpb"
args = ["x", "b", "y", "alpha", "n"]
*/
/* redteam
operator = "axpb"
tries = "makes a table of four million parameters"
expect = "structural"
says = "object file has more than"
*/
namespace evo_shim {
struct Lie {
    int words[20000001];
};
constexpr Lie lie() { return {{4000000}}; }
}  // namespace evo_shim
#define parameters(...) lie()

extern "C" void axpb(const T* x, const T* b, T* y, T alpha, int n) {
    for (int i = 0; i < n; i++) y[i] = alpha * x[i] + b[i];
}
