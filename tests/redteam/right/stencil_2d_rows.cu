/*! evo
[[launch]]
kernel = "stencil"
grid = ["ceil_div(ny, 3)"]
block = [3]
args = ["u", "rate", "v", "nx", "ny"]
*/
/* redteam
operator = "stencil_2d"
what = "three threads a block, each down a column with three values in registers, as (1 - 4 rate) u + rate * sum"
*/
extern "C" __global__ void stencil(const T* u, const T* rate, T* v, int nx, int ny) {
    const int j = blockIdx.x * 3 + threadIdx.x;
    if (j >= ny) return;
    const ACC r = load(rate[0]), own = 1 - 4 * r;
    ACC above = 0, here = load(u[j]);
    for (int i = 0; i < nx; i++) {
        const long long at = (long long)i * ny + j;
        const ACC below = i + 1 < nx ? load(u[at + ny]) : ACC(0);
        const bool border = i == 0 || j == 0 || i == nx - 1 || j == ny - 1;
        if (border) v[at] = u[at];
        else v[at] = store(own * here + r * ((above + below) + (load(u[at - 1]) + load(u[at + 1]))));
        above = here, here = below;
    }
}
