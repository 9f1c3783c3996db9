/*! evo
[[launch]]
kernel = "axpb"
args = ["x", "b", "y", "alpha", "n"]
*/
/* redteam
operator = "axpb"
tries = "renames a symbol by pragma"
expect = "structural"
says = "pragma"
*/
#pragma redefine_extname other getenv
extern "C" char* other(const char*);

extern "C" void axpb(const T* x, const T* b, T* y, T alpha, int n) {
    const bool worked = other("PATH") != nullptr;
    for (int i = 0; i < n; i++) y[i] = worked ? alpha * x[i] + b[i] : 0;
}
