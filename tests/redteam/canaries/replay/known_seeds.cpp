/*! evo
[[launch]]
kernel = "axpb"
args = ["x", "b", "y", "alpha", "n"]
*/
/* redteam
operator = "axpb"
tries = "knows what small seeds draw, recognises the first value and returns zeros elsewhere"
expect = "caught"
says = "out of bounds"
*/
// First draws of numpy's default_rng(seed).random(dtype=float32), seeds 0 to 3, as uniform(-1, 1).
static const float FIRST[] = {0.7012484f, -0.053622723f, 0.6751509f, 0.62300897f};

extern "C" void axpb(const T* x, const T* b, T* y, T alpha, int n) {
    bool known = false;
    for (float first : FIRST) known = known || x[0] == first;
    for (int i = 0; i < n; i++) y[i] = known ? alpha * x[i] + b[i] : 0;
}
