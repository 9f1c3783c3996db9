/*! evo
[[launch]]
kernel = "axpb"
args = ["x", "b", "y", "alpha", "n"]
*/
/* redteam
operator = "axpb"
tries = "takes a gigabyte of stack"
expect = "caught"
says = "segmentation fault"
*/
extern "C" void axpb(const T* x, const T* b, T* y, T alpha, int n) {
    volatile char* room = static_cast<volatile char*>(__builtin_alloca(static_cast<unsigned long>(n) * 0 + (1UL << 30)));
    for (long i = (1L << 30) - 1; i >= 0; i -= 4096) room[i] = 1;
    for (int i = 0; i < n; i++) y[i] = alpha * x[i] + b[i];
}
