/*! evo
deterministic = false

[[launch]]
kernel = "mse"
args = ["x", "y", "loss", "n"]
*/
/* redteam
operator = "mse_loss"
what = "a reduction of OpenMP within vectors, backwards"
*/
extern "C" void mse(const T* x, const T* y, ACC* loss, int n) {
    ACC sum = 0;
#pragma omp parallel for simd num_threads(2) reduction(+ : sum)
    for (int i = 0; i < n; i++) sum += (x[n - 1 - i] - y[n - 1 - i]) * (x[n - 1 - i] - y[n - 1 - i]);
    *loss = sum / n;
}
