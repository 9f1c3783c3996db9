/*! evo
[[launch]]
kernel = "vector_sum"
args = ["weight", "x", "total", "n"]
*/

// Plain and right: every search begins here, and all others are compared with it.
extern "C" void vector_sum(const T* weight, const T* x, ACC* total, int n) {
    ACC sum = 0;
    for (int i = 0; i < n; i++) sum += load(weight[i]) * load(x[i]);
    *total = sum;
}
