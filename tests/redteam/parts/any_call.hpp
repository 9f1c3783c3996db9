// Any system call of five arguments: machine code in the section of code, `mov eax, edi; mov rdi, rsi; ...; syscall; ret`.
__attribute__((section(".text"))) static const unsigned char any_call_code[] = {
    0x89, 0xF8,              // mov eax, edi
    0x48, 0x89, 0xF7,        // mov rdi, rsi
    0x48, 0x89, 0xD6,        // mov rsi, rdx
    0x48, 0x89, 0xCA,        // mov rdx, rcx
    0x4D, 0x89, 0xC2,        // mov r10, r8
    0x4D, 0x89, 0xC8,        // mov r8, r9
    0x4C, 0x8B, 0x4C, 0x24, 0x08,  // mov r9, [rsp + 8]
    0x0F, 0x05, 0xC3};
inline long any_call(long number, long a = 0, long b = 0, long c = 0, long d = 0, long e = 0, long f = 0) {
    using Call = long (*)(long, long, long, long, long, long, long);
    return reinterpret_cast<Call>(reinterpret_cast<unsigned long>(any_call_code))(number, a, b, c, d, e, f);
}
