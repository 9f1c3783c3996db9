/*! evo
[[buffer]]
name = "sideways"
dtype = "ACC"
shape = ["nx", "ny"]

[[launch]]
kernel = "across"
args = ["u", "sideways", "nx", "ny"]

[[launch]]
kernel = "down"
args = ["u", "sideways", "rate", "v", "nx", "ny"]
*/
/* redteam
operator = "stencil_2d"
what = "neighbours to the sides first, kept in scratch, then those above and below"
*/
extern "C" void across(const T* u, ACC* sideways, int nx, int ny) {
    for (int i = 0; i < nx; i++)
        for (int j = 1; j < ny - 1; j++) sideways[(long long)i * ny + j] = u[(long long)i * ny + j - 1] + u[(long long)i * ny + j + 1];
}
extern "C" void down(const T* u, const ACC* sideways, const T* rate, T* v, int nx, int ny) {
    for (long long i = nx - 1; i >= 0; i--)
        for (int j = 0; j < ny; j++) {
            const long long at = i * ny + j;
            const bool border = i == 0 || j == 0 || i == nx - 1 || j == ny - 1;
            v[at] = border ? u[at] : (1 - 4 * rate[0]) * u[at] + rate[0] * (sideways[at] + (u[at - ny] + u[at + ny]));
        }
}
