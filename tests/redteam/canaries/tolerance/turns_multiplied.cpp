/*! evo
[[buffer]]
name = "re"
dtype = "ACC"
shape = ["n"]

[[buffer]]
name = "im"
dtype = "ACC"
shape = ["n"]

[[launch]]
kernel = "fft"
args = ["x_re", "x_im", "y_re", "y_im", "re", "im", "n"]
*/
/* redteam
operator = "fft"
tries = "turns by repeated multiplication in place of sines"
expect = "caught"
says = "out of bounds|rms is"
*/
#include <cmath>
extern "C" void fft(const T* x_re, const T* x_im, T* y_re, T* y_im, ACC* re, ACC* im, int n) {
    for (int i = 0, from = 0; i < n; i++) {
        re[i] = x_re[from], im[i] = x_im[from];
        int bit = n / 2;
        for (; bit > 0 && from & bit; bit /= 2) from -= bit;
        from += bit;
    }
    for (int half = 1; half < n; half *= 2) {
        const ACC angle = ACC(-3.14159265358979323846) / half, c = std::cos(angle), s = std::sin(angle);
        for (int begin = 0; begin < n; begin += 2 * half) {
            ACC cosine = 1, sine = 0;
            for (int k = 0; k < half; k++) {
                const int low = begin + k, high = low + half;
                ACC a = re[high] * cosine - im[high] * sine, b = re[high] * sine + im[high] * cosine;
                re[high] = re[low] - a, im[high] = im[low] - b, re[low] += a, im[low] += b;
                const ACC next = cosine * c - sine * s;
                sine = cosine * s + sine * c, cosine = next;
            }
        }
    }
    for (int i = 0; i < n; i++) y_re[i] = re[i], y_im[i] = im[i];
}
