/*! evo
[[launch]]
kernel = "axpb"
args = ["x", "b", "y", "alpha", "n"]
*/
/* redteam
operator = "axpb"
tries = "makes the system call of the runner's last word itself, half the work before the end"
expect = "caught"
says = "forbidden system call"
needs = ['elf_walk', 'words', 'system_call']
machine = "x86_64"
*/
extern "C" void axpb(const T* x, const T* b, T* y, T alpha, int n) {
    for (int i = 0; i < n / 2; i++) y[i] = alpha * x[i] + b[i];
    const long words[4] = {2, 0, 0, 0};
    system_call<1>(0, reinterpret_cast<long>(words), sizeof words);
    for (int i = n / 2; i < n; i++) y[i] = alpha * x[i] + b[i];
}
