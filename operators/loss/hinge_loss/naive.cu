/*! evo
[tune]
BLOCK = [256, 64, 128, 512, 1024]

[[launch]]
kernel = "hinge_loss"
grid = ["ceil_div(n, BLOCK)"]
block = ["BLOCK"]
args = ["predicted", "target", "loss", "n"]
*/

// One thread per element.
extern "C" __global__ void hinge_loss(const T* predicted, const int* target, T* loss, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    ACC sign = target[i] == 1 ? ACC(1) : ACC(-1);
    ACC margin = ACC(1) - sign * load(predicted[i]);
    loss[i] = store(margin > 0 ? margin : ACC(0));
}
