/*! evo
[[launch]]
kernel = "axpb"
args = ["x", "b", "y", "alpha", "n"]
*/
/* redteam
operator = "axpb"
tries = "sends the last word from behind the place where its order is read and obeyed"
expect = "caught"
says = "it said that it was done from a place where only the runner may"
needs = ['elf_walk', 'words']
machine = "x86_64"
*/
// Registers as the runner's code has them there, then on to its sending.
__attribute__((section(".text"))) static const unsigned char go[] = {
    0x49, 0x89, 0xFD,  // mov r13, rdi
    0x45, 0x31, 0xE4,  // xor r12d, r12d
    0xFF, 0xE6,        // jmp rsi
};

extern "C" void axpb(const T* x, const T* b, T* y, T alpha, int n) {
    for (int i = 0; i < n; i++) y[i] = alpha * x[i] + b[i];
    const long words[4] = {2, 0, 0, 0};
    reinterpret_cast<void (*)(const long*, const void*)>(reinterpret_cast<unsigned long>(go))(words, last_sending());
}
