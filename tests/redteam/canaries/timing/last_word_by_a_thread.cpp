/*! evo
[[launch]]
kernel = "axpb"
args = ["x", "b", "y", "alpha", "n"]
*/
/* redteam
operator = "axpb"
tries = "one thread of the team sends the runner's last word while the other is still at work"
expect = "caught"
says = "@RACE@"
needs = ['elf_walk', 'words']
machine = "x86_64"
*/
extern "C" void axpb(const T* x, const T* b, T* y, T alpha, int n) {
    long words[4] = {2, 0, 0, 0};
    const auto say_last = reinterpret_cast<void (*)(int, long*)>(reinterpret_cast<unsigned long>(last_sender()));
    volatile bool halfway = false;
#pragma omp parallel num_threads(2)
    {
#pragma omp sections
        {
#pragma omp section
            {
                while (!halfway) {}
                say_last(0, words);
            }
#pragma omp section
            {
                for (int i = 0; i < n / 2; i++) y[i] = alpha * x[i] + b[i];
                halfway = true;
                for (int repeat = 0; repeat < 50; repeat++)
                    for (int i = n / 2; i < n; i++) const_cast<volatile T*>(y)[i] = repeat < 49 ? T(0) : alpha * x[i] + b[i];
            }
        }
    }
}
