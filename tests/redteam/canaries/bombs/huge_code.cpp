/*! evo
[[launch]]
kernel = "axpb"
args = ["x", "b", "y", "alpha", "n"]
*/
/* redteam
operator = "axpb"
tries = "has the assembler make two megabytes of code, which are then disassembled"
expect = "structural"
machine = "x86_64"
says = "with more than a name in it"
*/
__attribute__((section(".text,\"ax\",@progbits\n.fill 2000000, 1, 0x90\n#"), noinline, used)) static void filler() {}

extern "C" void axpb(const T* x, const T* b, T* y, T alpha, int n) {
    for (int i = 0; i < n; i++) y[i] = alpha * x[i] + b[i];
}
