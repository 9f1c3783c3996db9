/*! evo
[[launch]]
kernel = "row_peaks"
grid = ["rows"]
block = [1]
args = ["x", "y", "cols"]
*/
extern "C" __global__ void row_peaks(const T* x, T* y, int cols) {
    ACC peak = 0;
    for (int c = 0; c < cols; c++) peak = fmaxf(peak, fabsf(load(x[(long long)blockIdx.x * cols + c])));
    y[blockIdx.x] = store(peak);
}
