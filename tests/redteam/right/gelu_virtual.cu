/*! evo
[[launch]]
kernel = "gelu"
grid = ["ceil_div(n, 256)"]
block = [256]
args = ["x", "y", "n"]
*/
/* redteam
operator = "gelu"
what = "with a virtual function, which the compiler knows"
*/
struct Shape {
    __device__ virtual ACC of(ACC v) const = 0;
};
struct Gelu : Shape {
    __device__ ACC of(ACC v) const override {
        return ACC(0.5) * v * (ACC(1) + erff(v * ACC(0.70710678118654752440)));
    }
};
__device__ ACC shaped(const Shape& shape, ACC v) { return shape.of(v); }

extern "C" __global__ void gelu(const T* x, T* y, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = store(shaped(Gelu(), load(x[i])));
}
