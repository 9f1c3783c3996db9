/*! evo
deterministic = false
zero = ["loss"]

[tune]
BLOCK = [256, 64, 128, 512, 1024]
BLOCKS = [1024, 132, 264, 528]

[[launch]]
kernel = "cross_entropy_loss"
grid = ["min(ceil_div(classes, BLOCK), BLOCKS)"]
block = ["BLOCK"]
args = ["predicted", "target", "loss", "classes"]
*/

// Every thread adds its own sum to the result.
extern "C" __global__ void cross_entropy_loss(const T* predicted, const T* target, ACC* loss, int classes) {
    ACC sum = 0;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < classes; i += gridDim.x * blockDim.x) {
        ACC p = load(predicted[i]);
        if (p < ACC(1e-8)) p = ACC(1e-8);
        sum += load(target[i]) * logf(p);
    }
    atomicAdd(loss, -sum);
}
