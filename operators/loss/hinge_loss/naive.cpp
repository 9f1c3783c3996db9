/*! evo
[[launch]]
kernel = "hinge_loss"
args = ["predicted", "target", "loss", "n"]
*/

extern "C" void hinge_loss(const T* predicted, const int* target, T* loss, int n) {
    for (int i = 0; i < n; i++) {
        ACC sign = target[i] == 1 ? ACC(1) : ACC(-1);
        ACC margin = ACC(1) - sign * load(predicted[i]);
        loss[i] = store(margin > 0 ? margin : ACC(0));
    }
}
