/*! evo
[[launch]]
kernel = "axpb"
args = ["x", "b", "y", "alpha", "n"]
*/
/* redteam
operator = "axpb"
tries = "sends the last word from where the runner sends its first one, after which it could go on"
expect = "caught"
says = "forbidden system call"
needs = ['elf_walk', 'words']
machine = "x86_64"
*/
extern "C" void axpb(const T* x, const T* b, T* y, T alpha, int n) {
    for (int i = 0; i < n / 2; i++) y[i] = alpha * x[i] + b[i];
    const long words[4] = {2, 0, 0, 0};
    reinterpret_cast<long (*)(int, const void*, unsigned long)>(reinterpret_cast<unsigned long>(first_sender()))(0, words, sizeof words);
    for (int i = n / 2; i < n; i++) y[i] = alpha * x[i] + b[i];
}
