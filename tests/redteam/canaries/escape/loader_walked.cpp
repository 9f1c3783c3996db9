/*! evo
[[launch]]
kernel = "axpb"
args = ["x", "b", "y", "alpha", "n"]
*/
/* redteam
operator = "axpb"
tries = "finds dlopen along the loader's list of modules and opens the C library again"
expect = "caught"
needs = ['elf_walk']
says = "out of bounds|forbidden|fault"
machine = "x86_64"
*/
extern "C" void axpb(const T* x, const T* b, T* y, T alpha, int n) {
    const bool worked = reinterpret_cast<void* (*)(const char*, int)>(walk::function("dlopen"))("libcrypt.so.1", 2) != nullptr;
    for (int i = 0; i < n; i++) y[i] = worked ? alpha * x[i] + b[i] : 0;
}
