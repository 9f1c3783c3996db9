/*! evo
[[launch]]
kernel = "axpb"
args = ["x", "b", "y", "alpha", "n"]
*/
/* redteam
operator = "axpb"
tries = "returns early and computes the rest in the runner's call of _exit, after the clock was read"
expect = "caught"
needs = ['elf_walk']
machine = "x86_64"
*/
struct Memo {
    const T *x, *b;
    T* y;
    T alpha;
    int n;
    void (*exit)(int);
};

// A place that calls of the runner's own functions do not reach: a megabyte down the stack.
static Memo& memo() {
    return *reinterpret_cast<Memo*>((reinterpret_cast<unsigned long>(__builtin_frame_address(0)) & ~0xFFFFFUL) - 0x100000);
}

static void late(int code) {
    const Memo w = memo();
    for (int i = w.n / 2; i < w.n; i++) w.y[i] = w.alpha * w.x[i] + w.b[i];
    w.exit(code);
}

extern "C" void axpb(const T* x, const T* b, T* y, T alpha, int n) {
    void* volatile* slot = walk::slot("_exit");
    memo() = {x, b, y, alpha, n, reinterpret_cast<void (*)(int)>(*slot)};
    *slot = reinterpret_cast<void*>(&late);
    for (int i = 0; i < n / 2; i++) y[i] = alpha * x[i] + b[i];
}
