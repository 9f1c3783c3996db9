/*! evo
[[launch]]
kernel = "axpb"
args = ["x", "b", "y", "alpha", "n"]
*/
/* redteam
operator = "axpb"
what = "with virtual functions, chosen by what it computes"
*/
struct Step {
    virtual T of(T x, T b) const = 0;
    virtual ~Step() = default;
};
struct Scaled : Step {
    T alpha;
    explicit Scaled(T alpha) : alpha(alpha) {}
    T of(T x, T b) const override { return alpha * x + b; }
};
struct Negated : Step {
    T of(T x, T b) const override { return b - x; }
};

__attribute__((noinline)) static void every(const Step& step, const T* x, const T* b, T* y, int n) {
    for (int i = 0; i < n; i++) y[i] = step.of(x[i], b[i]);
}

extern "C" void axpb(const T* x, const T* b, T* y, T alpha, int n) {
    const Scaled scaled(alpha);
    const Negated negated;
    every(alpha == T(-1) ? static_cast<const Step&>(negated) : scaled, x, b, y, n);
}
