/*! evo
[[buffer]]
name = "buffers"
dtype = "ACC"
shape = [4, "n"]

[[buffer]]
name = "turns"
dtype = "ACC"
shape = [2, "max(n // 2, 1)"]

[[launch]]
kernel = "prepare"
args = ["x_re", "x_im", "buffers", "turns", "n"]

[[launch]]
kernel = "pass"
args = ["buffers", "turns", "2 ** i", "i", "n"]
group = "passes"

[group.passes]
repeat = "ceil_log2(n)"

[[launch]]
kernel = "finish"
args = ["buffers", "y_re", "y_im", "ceil_log2(n)", "n"]
*/
/* redteam
operator = "fft"
what = "Stockham's, a launch a pass, with a table of turns in scratch"
*/
#include <cmath>
extern "C" void prepare(const T* re, const T* im, ACC* buffers, ACC* turns, int n) {
    for (int i = 0; i < n; i++) buffers[i] = re[i], buffers[n + i] = im[i];
    for (int i = 0; i < n / 2; i++) {
        turns[2 * i] = std::cos(2 * 3.14159265358979323846 * i / n);
        turns[2 * i + 1] = -std::sin(2 * 3.14159265358979323846 * i / n);
    }
}
extern "C" void pass(ACC* buffers, const ACC* turns, int half, int number, int n) {
    const ACC* from = buffers + (number % 2 ? 2 * n : 0);
    ACC* to = buffers + (number % 2 ? 0 : 2 * n);
    for (int t = 0; t < n / 2; t++) {
        const int k = t & (half - 1), at = 2 * t - k, turn = k * (n / 2 / half);
        const ACC re = from[t + n / 2], im = from[n + t + n / 2], c = turns[2 * turn], s = turns[2 * turn + 1];
        const ACC turned_re = re * c - im * s, turned_im = re * s + im * c;
        to[at] = from[t] + turned_re, to[n + at] = from[n + t] + turned_im;
        to[at + half] = from[t] - turned_re, to[n + at + half] = from[n + t] - turned_im;
    }
}
extern "C" void finish(const ACC* buffers, T* re, T* im, int passes, int n) {
    const ACC* from = buffers + (passes % 2 ? 2 * n : 0);
    for (int i = 0; i < n; i++) re[i] = from[i], im[i] = from[n + i];
}
