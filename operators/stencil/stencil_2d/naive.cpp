/*! evo
[[launch]]
kernel = "stencil_2d"
args = ["u", "rate", "v", "nx", "ny"]
*/

extern "C" void stencil_2d(const T* u, const T* rate, T* v, int nx, int ny) {
    ACC r = load(rate[0]);
    for (int i = 0; i < nx; i++) {
        for (int j = 0; j < ny; j++) {
            long long at = (long long)i * ny + j;
            if (i == 0 || j == 0 || i == nx - 1 || j == ny - 1) {
                v[at] = u[at];
                continue;
            }
            ACC middle = load(u[at]);
            ACC around = load(u[at - ny]) + load(u[at + ny]) + load(u[at - 1]) + load(u[at + 1]);
            v[at] = store(middle + r * (around - 4 * middle));
        }
    }
}
