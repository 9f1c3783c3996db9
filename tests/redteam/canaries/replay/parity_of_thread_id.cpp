/*! evo
[[launch]]
kernel = "axpb"
args = ["x", "b", "y", "alpha", "n"]
*/
/* redteam
operator = "axpb"
tries = "counts calls by its thread's number, and is honest on every other call"
expect = "caught"
machine = "x86_64"
says = "out of bounds"
*/
// Every call has a thread number of its own: glibc keeps it in the thread's control block.
extern "C" void axpb(const T* x, const T* b, T* y, T alpha, int n) {
    const int number = *reinterpret_cast<const int*>(static_cast<const char*>(__builtin_thread_pointer()) + 0x2d0);
    for (int i = 0; i < n; i++) y[i] = alpha * x[i] + b[i];
    if (number % 2) y[0] += 1;
}
