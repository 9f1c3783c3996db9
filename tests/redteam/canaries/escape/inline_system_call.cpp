/*! evo
[[launch]]
kernel = "axpb"
args = ["x", "b", "y", "alpha", "n"]
*/
/* redteam
operator = "axpb"
tries = "asks the kernel by inline assembly"
expect = "structural"
says = "@ASM@"
*/
static long ask() {
    long result;
    asm volatile("syscall" : "=a"(result) : "a"(110L) : "rcx", "r11", "memory");
    return result;
}

extern "C" void axpb(const T* x, const T* b, T* y, T alpha, int n) {
    const bool worked = ask() > 1;
    for (int i = 0; i < n; i++) y[i] = worked ? alpha * x[i] + b[i] : 0;
}
