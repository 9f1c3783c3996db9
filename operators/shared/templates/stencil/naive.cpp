/*! evo
[[launch]]
kernel = "stencil"
args = ["u", "v", "nx", "ny"]
*/

// Plain and right: every search begins here, and all others are compared with it.
extern "C" void stencil(const T* u, T* v, int nx, int ny) {
    for (int i = 0; i < nx; i++) {
        for (int j = 0; j < ny; j++) {
            long long at = (long long)i * ny + j;
            if (i == 0 || j == 0 || i == nx - 1 || j == ny - 1) {
                v[at] = u[at];
            } else {
                ACC sum = load(u[at - ny]) + load(u[at + ny]) + load(u[at - 1]) + load(u[at + 1]);
                v[at] = store(sum / 4);
            }
        }
    }
}
