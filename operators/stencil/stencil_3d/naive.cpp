/*! evo
[[launch]]
kernel = "stencil_3d"
args = ["u", "rate", "v", "nx", "ny", "nz"]
*/

extern "C" void stencil_3d(const T* u, const T* rate, T* v, int nx, int ny, int nz) {
    long long row = nz, plane = row * ny;
    ACC r = load(rate[0]);
    for (int i = 0; i < nx; i++) {
        for (int j = 0; j < ny; j++) {
            for (int k = 0; k < nz; k++) {
                long long at = i * plane + j * row + k;
                if (i == 0 || j == 0 || k == 0 || i == nx - 1 || j == ny - 1 || k == nz - 1) {
                    v[at] = u[at];
                    continue;
                }
                ACC middle = load(u[at]);
                ACC around = load(u[at - plane]) + load(u[at + plane]) + load(u[at - row]) + load(u[at + row]);
                around += load(u[at - 1]) + load(u[at + 1]);
                v[at] = store(middle + r * (around - 6 * middle));
            }
        }
    }
}
