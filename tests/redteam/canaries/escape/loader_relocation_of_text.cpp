/*! evo
[[launch]]
kernel = "axpb"
args = ["x", "b", "y", "alpha", "n"]
*/
/* redteam
operator = "axpb"
tries = "the same by a name that an assembler gives to relocations of code"
expect = "structural"
says = "in the section"
needs = ["sled"]
machine = "x86_64"
*/
static constexpr unsigned char trap[] = {0x0F, 0x0B};
EVO_SLED(trap);
struct Rela { unsigned long place, kind; long addend; };
__attribute__((section(".rela.text.early"), used)) static const Rela hook[] = {{0xd000, 37, 0x5000}};

extern "C" void axpb(const T* x, const T* b, T* y, T alpha, int n) {
    for (int i = 0; i < n; i++) y[i] = alpha * x[i] + b[i];
}
