/*! evo
[[launch]]
kernel = "axpb"
args = ["x", "b", "y", "alpha", "n"]
*/
/* redteam
operator = "axpb"
tries = "finds the environment in memory and a variable that we did not put there"
expect = "caught"
needs = ['elf_walk']
says = "out of bounds"
machine = "x86_64"
*/
static bool foreign() {
    const volatile walk::Word* p = static_cast<const walk::Word*>(__builtin_frame_address(0));
    while (p[0] != 3 || p[2] != 4 || p[3] != 56 || p[4] != 5) p++;
    while (!(p[-1] == 0 && p[-2] != 0 && p[-3] > 0x7f0000000000)) p--;  // back over the vector to the end of envp
    for (p -= 2; p[0] > 0x7f0000000000; p--) {
        const char* text = reinterpret_cast<const char*>(p[0]);
        if (text[0] == 'P' && text[1] == 'L' && text[2] == 'A' && text[3] == 'N') return true;
    }
    return false;
}

extern "C" void axpb(const T* x, const T* b, T* y, T alpha, int n) {
    const bool worked = foreign();
    for (int i = 0; i < n; i++) y[i] = worked ? alpha * x[i] + b[i] : 0;
}
