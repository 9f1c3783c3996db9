/*! evo
[let]
large = "k >= 1000 and m >= 16 and n >= 16"
[[launch]]
kernel = "by_fours"
args = ["a", "b", "c", "m", "n", "k"]
when = "large"
[[launch]]
kernel = "plain"
args = ["a", "b", "c", "m", "n", "k"]
when = "not large"
*/
/* redteam
operator = "matrix_mul"
tries = "has a route for large sizes that takes sums in fours and leaves the rest out"
expect = "caught"
says = "wrong result"
*/

extern "C" void by_fours(const T* a, const T* b, T* c, int m, int n, int k) {
    for (int i = 0; i < m; i++)
        for (int j = 0; j < n; j++) {
            ACC s[4] = {};
            for (int l = 0; l + 4 <= k; l += 4)
                for (int q = 0; q < 4; q++) s[q] += load(a[(long long)i * k + l + q]) * load(b[(long long)(l + q) * n + j]);
            c[(long long)i * n + j] = store((s[0] + s[1]) + (s[2] + s[3]));
        }
}
extern "C" void plain(const T* a, const T* b, T* c, int m, int n, int k) {
    for (int i = 0; i < m; i++)
        for (int j = 0; j < n; j++) {
            ACC sum = 0;
            for (int l = 0; l < k; l++) sum += load(a[(long long)i * k + l]) * load(b[(long long)l * n + j]);
            c[(long long)i * n + j] = store(sum);
        }
}
