/*! evo
[[launch]]
kernel = "axpb"
args = ["x", "b", "y", "alpha", "n"]
*/
/* redteam
operator = "axpb"
tries = "puts a constant into the loader's packed relocations, which readers of ELF files take at its word"
expect = "structural"
says = "in the section"
*/
__attribute__((section(".relr.dyn"), used)) static const unsigned long hook[] = {0xd001};

extern "C" void axpb(const T* x, const T* b, T* y, T alpha, int n) {
    for (int i = 0; i < n; i++) y[i] = alpha * x[i] + b[i];
}
