/*! evo
[[launch]]
kernel = "axpb"
args = ["x", "b", "y", "alpha", "n"]
*/
/* redteam
operator = "axpb"
tries = "makes the memory that its last order is read to read-only, so that there is nothing to obey"
expect = "caught"
says = "segmentation fault"
needs = ['elf_walk', 'words', 'any_call']
machine = "x86_64"
*/
extern "C" void axpb(const T* x, const T* b, T* y, T alpha, int n) {
    for (int i = 0; i < n; i++) y[i] = alpha * x[i] + b[i];
    long words[4] = {2, 0, 0, 0};
    const long page = reinterpret_cast<long>(ordered()) & ~4095L;
    any_call(10, page, 8192, 1);  // mprotect, PROT_READ
    say_last(words);
}
