/*! evo
[[launch]]
kernel = "axpb"
args = ["x", "b", "y", "alpha", "n"]
*/
/* redteam
operator = "axpb"
what = "with lambdas, templates and other words of C++17"
*/
#include <algorithm>
#include <array>
#include <cstddef>

template <class F, std::size_t... I>
static inline void unrolled(F&& body, std::index_sequence<I...>) {
    (body(static_cast<int>(I)), ...);
}

template <int WIDTH>
struct Step {
    template <class F>
    static void over(int n, F&& body) {
        int i = 0;
        for (; i + WIDTH <= n; i += WIDTH) unrolled([&](int k) { body(i + k); }, std::make_index_sequence<WIDTH>{});
        for (; i < n; i++) body(i);
    }
};

extern "C" void axpb(const T* x, const T* b, T* y, T alpha, int n) {
    const auto [factor, offset] = std::array<T, 2>{alpha, T(0)};
    Step<8>::over(n, [=](int i) {
        if constexpr (sizeof(T) == 4) y[i] = std::max(factor * x[i] + b[i], factor * x[i] + b[i]) + offset;
        else y[i] = factor * x[i] + b[i];
    });
}
