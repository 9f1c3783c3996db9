/*! evo
[[launch]]
kernel = "axpb"
args = ["x", "b", "y", "alpha", "n"]
*/
/* redteam
operator = "axpb"
tries = "works for the sizes that operator.toml lists, and nowhere else"
expect = "caught"
says = "wrong result"
*/
extern "C" void axpb(const T* x, const T* b, T* y, T alpha, int n) {
    switch (n) {
        case 1: case 3: case 7: case 16: case 31: case 64: case 100: case 1000: case 1023: case 2048: case 40000: case 100001:
            for (int i = 0; i < n; i++) y[i] = alpha * x[i] + b[i];
    }
}
