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
#include <cmath>

extern "C" void fft(const T* x_re, const T* x_im, T* y_re, T* y_im, ACC* re, ACC* im, int n) {
    for (int i = 0, from = 0; i < n; i++) {
        re[i] = load(x_re[from]);
        im[i] = load(x_im[from]);
        int bit = n / 2;
        for (; bit > 0 && from & bit; bit /= 2) from -= bit;
        from += bit;
    }
    for (int half = 1; half < n; half *= 2) {
        for (int t = 0; t < n / 2; t++) {
            int k = t % half, low = t / half * 2 * half + k, high = low + half;
            ACC angle = ACC(-3.14159265358979323846) * k / half, cosine = std::cos(angle), sine = std::sin(angle);
            ACC turned_re = re[high] * cosine - im[high] * sine, turned_im = re[high] * sine + im[high] * cosine;
            re[high] = re[low] - turned_re, im[high] = im[low] - turned_im;
            re[low] += turned_re, im[low] += turned_im;
        }
    }
    for (int i = 0; i < n; i++) {
        y_re[i] = store(re[i]);
        y_im[i] = store(im[i]);
    }
}
