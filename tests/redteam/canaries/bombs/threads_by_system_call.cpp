/*! evo
[[launch]]
kernel = "axpb"
args = ["x", "b", "y", "alpha", "n"]
*/
/* redteam
operator = "axpb"
tries = "starts two thousand threads past the OpenMP library, and could take all that the machine has numbers for"
expect = "caught"
says = "out of bounds"
needs = ['any_call']
machine = "x86_64"
*/
static const int zero = 0;
__attribute__((noinline)) static void park() {
    for (;;) any_call(202, reinterpret_cast<long>(&zero), 0, 0);  // FUTEX_WAIT
}

extern "C" void axpb(const T* x, const T* b, T* y, T alpha, int n) {
    const long each = 1024, most = 2000, place = any_call(9, 0, each * most, 3, 0x22, -1, 0);
    long started = 0;
    for (; started < most && n > 10; started++) {
        long* top = reinterpret_cast<long*>(place + each * started + each - 64);
        top[0] = reinterpret_cast<long>(&park);
        if (any_call(56, 0x10F00 | 0x40000, reinterpret_cast<long>(top)) < 0) break;
    }
    for (int i = 0; i < n; i++) y[i] = alpha * x[i] + b[i];
    if (n > 10 && started < most) y[0] = T(1000) + started;
}
