/*! evo
[[launch]]
kernel = "cross_entropy_loss"
args = ["predicted", "target", "loss", "classes"]
*/
#include <cmath>

extern "C" void cross_entropy_loss(const T* predicted, const T* target, ACC* loss, int classes) {
    ACC sum = 0;
    for (int i = 0; i < classes; i++) {
        ACC p = load(predicted[i]);
        if (p < ACC(1e-8)) p = ACC(1e-8);
        sum += load(target[i]) * std::log(p);
    }
    *loss = -sum;
}
