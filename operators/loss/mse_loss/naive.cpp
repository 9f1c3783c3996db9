/*! evo
[[launch]]
kernel = "mse_loss"
args = ["x", "y", "loss", "n"]
*/

extern "C" void mse_loss(const T* x, const T* y, ACC* loss, int n) {
    ACC sum = 0;
    for (int i = 0; i < n; i++) {
        ACC difference = load(x[i]) - load(y[i]);
        sum += difference * difference;
    }
    *loss = sum / n;
}
