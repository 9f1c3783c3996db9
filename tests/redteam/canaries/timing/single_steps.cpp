/*! evo
[[launch]]
kernel = "axpb"
args = ["x", "b", "y", "alpha", "n"]
*/
/* redteam
operator = "axpb"
tries = "has the processor trap behind every instruction, so that a handler of its own could run behind the last word"
expect = "caught"
says = "signal 5"
needs = ['elf_walk', 'words']
machine = "x86_64"
*/
// pushf; or dword [rsp], 0x100; popf; ret
__attribute__((section(".text"))) static const unsigned char step[] = {0x9C, 0x81, 0x0C, 0x24, 0, 1, 0, 0, 0x9D, 0xC3};

extern "C" void axpb(const T* x, const T* b, T* y, T alpha, int n) {
    for (int i = 0; i < n / 2; i++) y[i] = alpha * x[i] + b[i];
    reinterpret_cast<void (*)()>(reinterpret_cast<unsigned long>(step))();
    for (int i = n / 2; i < n; i++) y[i] = alpha * x[i] + b[i];
}
