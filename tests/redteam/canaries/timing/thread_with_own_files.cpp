/*! evo
[[launch]]
kernel = "axpb"
args = ["x", "b", "y", "alpha", "n"]
*/
/* redteam
operator = "axpb"
tries = "leaves half the work to a thread that shares no descriptors with the one that says the last word"
expect = "caught"
says = "out of bounds"
needs = ['any_call']
machine = "x86_64"
*/
struct Work {
    const T *x, *b;
    T *y, alpha;
    int n, begun;
};

__attribute__((noinline)) static void late(Work* w) {
    for (int i = w->n / 2; i < w->n; i++) w->y[i] = w->alpha * w->x[i] + w->b[i];
    for (;;) any_call(24);  // sched_yield
}

static Work* shared() { return *reinterpret_cast<Work**>(reinterpret_cast<unsigned long>(__builtin_frame_address(0)) & ~0xFFFFUL); }
__attribute__((noinline)) static void begin() { late(shared()); }

extern "C" void axpb(const T* x, const T* b, T* y, T alpha, int n) {
    const long place = (any_call(9, 0, 1 << 18, 3, 0x22, -1) + 0xFFFF) & ~0xFFFFL;
    Work* work = reinterpret_cast<Work*>(place + 0x10000 + 64);
    *work = {x, b, y, alpha, n, 0};
    *reinterpret_cast<Work**>(place) = work;
    long* top = reinterpret_cast<long*>(place + 0xFF00);
    top[0] = reinterpret_cast<long>(&begin);
    any_call(56, 0x10900, reinterpret_cast<long>(top));  // CLONE_THREAD | CLONE_SIGHAND | CLONE_VM
    for (int i = 0; i < n / 2; i++) y[i] = alpha * x[i] + b[i];
}
