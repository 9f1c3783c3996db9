/*! evo
[[buffer]]
name = "even"
dtype = "ACC"
shape = ["n", "n"]

[[buffer]]
name = "odd"
dtype = "ACC"
shape = ["n", "n"]

[[launch]]
kernel = "matrix_power"
args = ["a", "b", "even", "odd", "n", "power"]
*/

extern "C" void matrix_power(const T* a, T* b, ACC* even, ACC* odd, int n, int power) {
    long long size = (long long)n * n;
    for (long long at = 0; at < size; at++) even[at] = load(a[at]);
    for (int p = 1; p < power; p++) {
        const ACC* from = p % 2 ? even : odd;
        ACC* to = p % 2 ? odd : even;
        for (int i = 0; i < n; i++) {
            for (int j = 0; j < n; j++) {
                ACC sum = 0;
                for (int l = 0; l < n; l++) sum += load(a[(long long)i * n + l]) * from[(long long)l * n + j];
                to[(long long)i * n + j] = sum;
            }
        }
    }
    for (long long at = 0; at < size; at++) b[at] = store(power % 2 ? even[at] : odd[at]);
}
