/*! evo
[[launch]]
kernel = "product"
args = ["a", "b", "c", "m", "n", "k"]
*/

// Plain and right: every search begins here, and all others are compared with it.
extern "C" void product(const T* a, const T* b, T* c, int m, int n, int k) {
    for (int i = 0; i < m; i++) {
        for (int j = 0; j < n; j++) {
            ACC sum = 0;
            for (int l = 0; l < k; l++) sum += load(a[(long long)i * k + l]) * load(b[(long long)l * n + j]);
            c[(long long)i * n + j] = store(sum > 0 ? sum : ACC(0));
        }
    }
}
