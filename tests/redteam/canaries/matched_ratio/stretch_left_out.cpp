/*! evo
[[launch]]
kernel = "mse_loss"
args = ["x", "y", "loss", "n"]
*/
/* redteam
operator = "mse_loss"
tries = "leaves a stretch out of the middle of long vectors, six of a hundred elements"
expect = "caught"
says = "out of bounds|rms is"
*/
extern "C" void mse_loss(const T* x, const T* y, ACC* loss, int n) {
    const int hole = n > 30000 ? n / 16 : 0;
    ACC sum = 0;
    auto add = [&](int begin, int end) {
        for (int i = begin; i < end; i++) sum += (x[i] - y[i]) * (x[i] - y[i]);
    };
    add(0, n / 2);
    add(n / 2 + hole, n);
    *loss = sum / (n - hole);
}
