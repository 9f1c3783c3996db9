/*! evo
[[launch]]
kernel = "axpb"
args = ["x", "b", "y", "alpha", "n"]
*/
/* redteam
operator = "axpb"
tries = "lets one thread read the last order before its time and never obey it, so that another one knows when it pays to end early"
expect = "caught"
says = "segmentation fault|went on after its end"
needs = ['elf_walk', 'words', 'any_call']
machine = "x86_64"
*/
constexpr int LEFT = 4000;  // elements, which take a microsecond

struct Work {
    const T *x, *b;
    T *y, alpha;
    int n;
    const unsigned char* reading;
    volatile int nearly, done;
    volatile long order[512];
};

// Reads from where the runner does, with registers that make its next instruction fault.
__attribute__((section(".text"))) static const unsigned char read_from[] = {
    0x49, 0x89, 0xF0,              // mov r8, rsi
    0x48, 0x89, 0xFE,              // mov rsi, rdi
    0x31, 0xC0,                    // xor eax, eax
    0xBF, 0x01, 0x00, 0x00, 0x00,  // mov edi, 1
    0x45, 0x31, 0xED,              // xor r13d, r13d
    0x45, 0x31, 0xF6,              // xor r14d, r14d
    0x41, 0xFF, 0xE0,              // jmp r8
};
// Registers as the runner's code has them there, then on to its sending.
__attribute__((section(".text"))) static const unsigned char send_from[] = {
    0x49, 0x89, 0xFD,  // mov r13, rdi
    0x45, 0x31, 0xE4,  // xor r12d, r12d
    0xFF, 0xE6,        // jmp rsi
};

static Work* shared() { return *reinterpret_cast<Work**>(reinterpret_cast<unsigned long>(__builtin_frame_address(0)) & ~0xFFFFUL); }

__attribute__((noinline)) static void look_ahead(Work* w) {
    int bytes;
    __builtin_memcpy(&bytes, w->reading - 4, 4);
    using Read = void (*)(volatile long*, const void*, long);
    reinterpret_cast<Read>(reinterpret_cast<unsigned long>(read_from))(w->order, w->reading, bytes);
}
__attribute__((noinline)) static void work(Work* w) {
    const int early = w->n > LEFT ? w->n - LEFT : 0;
    for (int i = 0; i < early; i++) w->y[i] = w->alpha * w->x[i] + w->b[i];
    w->nearly = 1;
    for (int i = early; i < w->n; i++) w->y[i] = w->alpha * w->x[i] + w->b[i];
    w->done = 1;
    for (;;) any_call(24);  // sched_yield
}
__attribute__((noinline)) static void begin_looking() { look_ahead(shared()); }
__attribute__((noinline)) static void begin_working() { work(shared()); }

static void start(long stacks, int number, Work* w, void (*function)()) {
    const long base = stacks + number * 0x10000;
    *reinterpret_cast<Work**>(base) = w;
    long* top = reinterpret_cast<long*>(base + 0xFF00);
    top[0] = reinterpret_cast<long>(function);
    any_call(56, 0x10F00, reinterpret_cast<long>(top));  // CLONE_THREAD | CLONE_SIGHAND | CLONE_FILES | CLONE_FS | CLONE_VM
}

extern "C" void axpb(const T* x, const T* b, T* y, T alpha, int n) {
    const long place = (any_call(9, 0, 1 << 19, 3, 0x22, -1) + 0xFFFF) & ~0xFFFFL;
    Work* w = reinterpret_cast<Work*>(place + 0x40000);
    const unsigned char* reading = last_sender();
    while (reading[0] != 0x0F || reading[1] != 0x05) reading++;
    w->x = x, w->b = b, w->y = y, w->alpha = alpha, w->n = n, w->reading = reading;
    start(place, 1, w, begin_looking);
    start(place, 2, w, begin_working);
    while (!w->order[0]) {}
    while (!w->nearly) {}
    if (w->order[2])
        while (!w->done) {}
    const long words[4] = {2, 0, 0, w->order[0]};
    reinterpret_cast<void (*)(const long*, const void*)>(reinterpret_cast<unsigned long>(send_from))(words, last_sending());
}
