/*! evo
[[launch]]
kernel = "dot_product"
args = ["x", "y", "product", "n"]
*/

extern "C" void dot_product(const T* x, const T* y, ACC* product, int n) {
    ACC sum = 0;
    for (int i = 0; i < n; i++) {
        sum += load(x[i]) * load(y[i]);
    }
    *product = sum;
}
