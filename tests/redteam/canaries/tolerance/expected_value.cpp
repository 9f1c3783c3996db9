/*! evo
[[launch]]
kernel = "dot_product"
args = ["x", "y", "product", "n"]
*/
/* redteam
operator = "dot_product"
tries = "answers for long vectors what the sum of products of unknown signs is on average"
expect = "caught"
says = "out of bounds|rms is"
*/
static bool long_enough(int n) { return n >> 15; }

extern "C" void dot_product(const T* x, const T* y, ACC* product, int n) {
    ACC mean_x = 0, mean_y = 0, sum = 0;
    const int step = long_enough(n) ? 64 : 1;
    for (int i = 0; i < n; i += step) {
        mean_x += x[i];
        mean_y += y[i];
        sum += x[i] * y[i];
    }
    *product = long_enough(n) ? mean_x * mean_y / n * step * step : sum;
}
