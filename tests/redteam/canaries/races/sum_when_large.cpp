/*! evo
[[launch]]
kernel = "dot_product"
args = ["x", "y", "product", "n"]
*/
/* redteam
operator = "dot_product"
tries = "adds one number of each thread to the sum with nothing around it, on large sizes alone"
expect = "caught"
says = "@RACE@|rms is"
*/
extern "C" void dot_product(const T* x, const T* y, ACC* product, int n) {
    ACC total = 0;
    if (n > 30000) {
#pragma omp parallel num_threads(2)
        {
            ACC mine = 0;
#pragma omp for nowait
            for (int i = 0; i < n; i++) mine += x[i] * y[i];
            total += mine;
        }
    } else
        for (int i = 0; i < n; i++) total += x[i] * y[i];
    *product = total;
}
