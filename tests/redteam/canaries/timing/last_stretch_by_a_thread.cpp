/*! evo
[[launch]]
kernel = "axpb"
args = ["x", "b", "y", "alpha", "n"]
*/
/* redteam
operator = "axpb"
tries = "sends the runner's last word microseconds before another thread of its team is done"
expect = "caught"
says = "wrong result|@RACE@"
needs = ['elf_walk', 'words']
machine = "x86_64"
*/
constexpr int LEFT = 16000;  // elements, which take some microseconds

extern "C" void axpb(const T* x, const T* b, T* y, T alpha, int n) {
    long words[4] = {2, 0, 0, 0};
    const auto say_last = reinterpret_cast<void (*)(int, long*)>(reinterpret_cast<unsigned long>(last_sender()));
    const int early = n > LEFT ? n - LEFT : 0;
    volatile bool nearly = false;
#pragma omp parallel num_threads(2)
    {
#pragma omp sections
        {
#pragma omp section
            {
                while (!nearly) {}
                say_last(0, words);
            }
#pragma omp section
            {
                for (int i = 0; i < early; i++) y[i] = alpha * x[i] + b[i];
                nearly = true;
                for (int i = early; i < n; i++) y[i] = alpha * x[i] + b[i];
            }
        }
    }
}
