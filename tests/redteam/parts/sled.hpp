// Machine code in the section of code, behind so many instructions that do nothing that a guessed address hits it.
template <int BYTES>
struct Sled {
    unsigned char code[(1 << 15) + BYTES];
    constexpr explicit Sled(const unsigned char (&tail)[BYTES]) : code{} {
        for (int i = 0; i < 1 << 15; i++) code[i] = 0x90;
        for (int i = 0; i < BYTES; i++) code[(1 << 15) + i] = tail[i];
    }
};
#define EVO_SLED(TAIL) __attribute__((section(".text"), used)) static constexpr Sled<sizeof TAIL> sled(TAIL)
