/*! evo
[[launch]]
kernel = "axpb"
args = ["x", "b", "y", "alpha", "n"]
*/
/* redteam
operator = "axpb"
tries = "the same through a macro"
expect = "structural"
says = "@INCLUDE@|has_include"
*/
#define FILE_NAME "@SECRET@"
#if __has_include(FILE_NAME)
constexpr int planted = 42;
#else
constexpr int planted = 0;
#endif

extern "C" void axpb(const T* x, const T* b, T* y, T alpha, int n) {
    const bool worked = planted == 42;
    for (int i = 0; i < n; i++) y[i] = worked ? alpha * x[i] + b[i] : 0;
}
