/*! evo
[[launch]]
kernel = "scores"
grid = ["ceil_div(cols, 32)", "rows"]
block = [32]
args = ["q", "keys", "y", "rows", "cols", "depth"]
*/
extern "C" __global__ void scores(const T* q, const T* keys, T* y, int rows, int cols, int depth) {
    const int r = blockIdx.y, c = blockIdx.x * 32 + threadIdx.x;
    if (c >= cols) return;
    ACC sum = 0;
    for (int d = 0; d < depth; d++) sum += load(q[(long long)r * depth + d]) * load(keys[(long long)c * depth + d]);
    y[(long long)r * cols + c] = store(sum);
}
