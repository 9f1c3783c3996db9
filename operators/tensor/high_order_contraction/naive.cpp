/*! evo
[[launch]]
kernel = "high_order_contraction"
args = ["a", "b", "c", "na", "nb", "nc", "nx", "ny"]
*/

extern "C" void high_order_contraction(const T* a, const T* b, T* c, int na, int nb, int nc, int nx, int ny) {
    for (int i = 0; i < na * nb; i++) {
        for (int j = 0; j < nc; j++) {
            ACC sum = 0;
            for (int x = 0; x < nx; x++)
                for (int y = 0; y < ny; y++)
                    sum += load(a[((long long)(i / nb * nx + x) * nb + i % nb) * ny + y])
                        * load(b[(long long)(x * nc + j) * ny + y]);
            c[(long long)i * nc + j] = store(sum);
        }
    }
}
