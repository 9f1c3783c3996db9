/*! evo
[[launch]]
kernel = "axpb"
args = ["x", "b", "y", "alpha", "n"]
*/
/* redteam
operator = "axpb"
tries = "makes a file that outlives the call; its name begins like memcpy's"
expect = "structural"
says = "@SYMBOL@memfd_create"
*/
extern "C" int memfd_create(const char*, unsigned);

extern "C" void axpb(const T* x, const T* b, T* y, T alpha, int n) {
    const bool worked = memfd_create("kept", 0) >= 0;
    for (int i = 0; i < n; i++) y[i] = worked ? alpha * x[i] + b[i] : 0;
}
