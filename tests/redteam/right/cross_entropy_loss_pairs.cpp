/*! evo
[[launch]]
kernel = "loss"
args = ["predicted", "target", "loss", "classes"]
*/
/* redteam
operator = "cross_entropy_loss"
what = "halves added up by recursion, logarithms of base 2"
*/
#include <cmath>
static ACC sum(const T* p, const T* t, int n) {
    if (n > 8) return sum(p, t, n / 2) + sum(p + n / 2, t + n / 2, n - n / 2);
    ACC total = 0;
    for (int i = 0; i < n; i++) total += t[i] * (std::log2(p[i] > ACC(1e-8) ? p[i] : ACC(1e-8)) * ACC(0.69314718055994530942));
    return total;
}
extern "C" void loss(const T* predicted, const T* target, ACC* loss, int classes) { *loss = -sum(predicted, target, classes); }
