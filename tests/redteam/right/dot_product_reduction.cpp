/*! evo
deterministic = false

[[launch]]
kernel = "dot"
args = ["x", "y", "product", "n"]
*/
/* redteam
operator = "dot_product"
what = "a reduction over pieces that threads take as they come"
*/

extern "C" void dot(const T* x, const T* y, ACC* product, int n) {
    ACC sum = 0;
#pragma omp parallel for reduction(+ : sum) schedule(dynamic, 333)
    for (int i = 0; i < n; i++) sum += x[i] * y[i];
    *product = sum;
}
