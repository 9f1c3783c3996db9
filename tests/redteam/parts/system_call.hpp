// Any system call of up to three arguments, without assembly and without a symbol: the bytes of a constant are
// `mov eax, NUMBER; syscall; ret`, and one jumps into the middle of the instruction that loads it.
template <long NUMBER>
__attribute__((noinline, used)) unsigned long long constant() {
    return 0xC3050F00000000B8ULL | static_cast<unsigned long long>(NUMBER) << 8;
}

template <long NUMBER>
inline long system_call(long a = 0, long b = 0, long c = 0) {
    const unsigned char* p = reinterpret_cast<const unsigned char*>(&constant<NUMBER>);
    while (p[0] != 0xB8 || p[1] != (NUMBER & 255) || p[5] != 0x0F || p[6] != 0x05) p++;
    long (*volatile enter)(long, long, long) = reinterpret_cast<long (*)(long, long, long)>(p);
    return enter(a, b, c);
}
