/*! evo
[[buffer]]
name = "squares"
dtype = "ACC"
shape = [2, "n", "n"]

[[buffer]]
name = "results"
dtype = "ACC"
shape = [2, "n", "n"]

[[launch]]
kernel = "raise"
args = ["a", "b", "squares", "results", "n", "power"]
*/
/* redteam
operator = "matrix_power"
what = "by the binary digits of the exponent"
*/
static void multiply(const ACC* a, const ACC* b, ACC* c, int n) {
    for (long long i = 0; i < (long long)n * n; i++) c[i] = 0;
    for (int i = 0; i < n; i++)
        for (int l = 0; l < n; l++)
            for (int j = 0; j < n; j++) c[(long long)i * n + j] += a[(long long)i * n + l] * b[(long long)l * n + j];
}
extern "C" void raise(const T* a, T* b, ACC* squares, ACC* results, int n, int power) {
    const long long size = (long long)n * n;
    int square = 0, result = -1;
    for (long long i = 0; i < size; i++) squares[i] = a[i];
    for (;; power /= 2) {
        ACC* s = squares + square * size;
        if (power % 2) {
            ACC* to = results + (result == 0 ? size : 0);
            if (result < 0)
                for (long long i = 0; i < size; i++) to[i] = s[i];
            else
                multiply(results + result * size, s, to, n);
            result = result == 0;
        }
        if (power <= 1) break;
        multiply(s, s, squares + (1 - square) * size, n);
        square = 1 - square;
    }
    for (long long i = 0; i < size; i++) b[i] = results[result * size + i];
}
