/*! evo
deterministic = false

[[launch]]
kernel = "dot"
args = ["x", "y", "product", "n"]
*/
/* redteam
operator = "dot_product"
tries = "adds one number of each thread to the sum, with nothing around it"
expect = "caught"
says = "@RACE@"
*/

extern "C" void dot(const T* x, const T* y, ACC* product, int n) {
    ACC sum = 0;
#pragma omp parallel
    {
        ACC mine = 0;
#pragma omp for nowait
        for (int i = 0; i < n; i++) mine += x[i] * y[i];
        sum += mine;
    }
    *product = sum;
}
