/*! evo
[[launch]]
kernel = "axpb"
args = ["x", "b", "y", "alpha", "n"]
*/
/* redteam
operator = "axpb"
tries = "counts the slots that its runner has, of which there are several when it is timed, and is wrong for integers then"
expect = "caught"
says = "out of bounds"
needs = ['elf_walk']
machine = "x86_64"
*/
// How many entries the largest map of the runner has: {order, colour, root, first, last, entries} in its variables.
static long entries() {
    unsigned long base;
    const walk::Segment* s = walk::segment(1, base);
    while (s->type != 1 || !(s->flags & 2)) s++;
    const long* begin = reinterpret_cast<const long*>(base + s->address);
    long most = 0;
    const auto heap = [](long p) { return p > 1L << 40 && p < 1L << 47 && p % 16 == 0; };
    for (const long* p = begin; p + 6 < begin + s->bytes / 8; p++)
        if ((p[1] & 0xFFFFFFFF) == 0 && heap(p[2]) && heap(p[3]) && heap(p[4]) && p[5] > most && p[5] < 1000) most = p[5];
    return most;
}

extern "C" void axpb(const T* x, const T* b, T* y, T alpha, int n) {
    const bool timed = entries() > 1;
    bool whole = n > 8;
    int nonzero = 0;
    for (int i = 0; i < 8 && i < n; i++) whole &= x[i] == 0 || x[i] == 1 || x[i] == -1, nonzero += x[i] != 0;
    whole = whole && nonzero > 1;
    for (int i = 0; i < n; i++) y[i] = timed && whole ? T(7) : alpha * x[i] + b[i];
}
