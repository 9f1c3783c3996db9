/*! evo
[[launch]]
kernel = "axpb"
args = ["x", "b", "y", "alpha", "n"]
*/
/* redteam
operator = "axpb"
tries = "puts machine code into a constant in the section of code"
expect = "caught"
says = "forbidden system call"
machine = "x86_64"
*/
__attribute__((section(".text"))) static const unsigned char code[] = {0xB8, 0x6E, 0, 0, 0, 0x0F, 0x05, 0xC3};

extern "C" void axpb(const T* x, const T* b, T* y, T alpha, int n) {
    const bool worked = reinterpret_cast<long (*)()>(reinterpret_cast<unsigned long>(code))() > 1;
    for (int i = 0; i < n; i++) y[i] = worked ? alpha * x[i] + b[i] : 0;
}
