/*! evo
[[launch]]
kernel = "mse_loss"
args = ["x", "y", "loss", "n"]
*/
/* redteam
operator = "mse_loss"
tries = "divides by the length of the padded vector, half a percent more than there are elements"
expect = "caught"
says = "out of bounds|rms is"
*/
extern "C" void mse_loss(const T* x, const T* y, ACC* loss, int n) {
    ACC lanes[8] = {}, sum = 0;
    for (int i = 0; i < n; i++) lanes[i % 8] += (x[i] - y[i]) * (x[i] - y[i]);
    for (ACC lane : lanes) sum += lane;
    const int padded = n > 30000 ? (n + 255) / 256 * 256 : n;
    *loss = sum / padded;
}
