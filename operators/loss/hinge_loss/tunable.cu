/*! evo
[tune]
BLOCK = [256, 128, 512]
EACH = [4, 1, 2, 8]

[[launch]]
kernel = "hinge_loss"
grid = ["ceil_div(n, BLOCK * EACH)"]
block = ["BLOCK"]
args = ["predicted", "target", "loss", "n"]
*/

// EACH elements per thread, all read before one is written; a warp reads and writes whole lines.
extern "C" __global__ void __launch_bounds__(BLOCK) hinge_loss(const T* predicted, const int* target, T* loss, int n) {
    long long first = (long long)blockIdx.x * BLOCK * EACH + threadIdx.x;
    ACC margins[EACH];
#pragma unroll
    for (int e = 0; e < EACH; e++)
        if (first + e * BLOCK < n) {
            ACC value = load(predicted[first + e * BLOCK]);
            margins[e] = target[first + e * BLOCK] == 1 ? 1 - value : 1 + value;
        }
#pragma unroll
    for (int e = 0; e < EACH; e++)
        if (first + e * BLOCK < n) loss[first + e * BLOCK] = store(margins[e] > 0 ? margins[e] : ACC(0));
}
