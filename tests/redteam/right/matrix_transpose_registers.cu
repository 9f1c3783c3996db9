/*! evo
[[launch]]
kernel = "transpose"
grid = ["ceil_div(cols, 32)", "min(ceil_div(rows, 32), 65535)"]
block = [32]
args = ["x", "y", "rows", "cols"]
*/
/* redteam
operator = "matrix_transpose"
what = "tiles of 32 by 32 in the registers of a warp, turned by shuffles"
*/
template <int SIZE> struct Word { typedef unsigned Type; };
template <> struct Word<2> { typedef unsigned short Type; };
typedef Word<sizeof(T)>::Type Bits;

extern "C" __global__ void transpose(const T* in, T* out, int rows, int cols) {
    const Bits* x = reinterpret_cast<const Bits*>(in);
    Bits* y = reinterpret_cast<Bits*>(out);
    const int lane = threadIdx.x, column = blockIdx.x * 32;
    for (int row = blockIdx.y * 32; row < rows; row += gridDim.y * 32) {
        unsigned v[32];
#pragma unroll
        for (int r = 0; r < 32; r++)
            v[r] = row + r < rows && column + lane < cols ? x[(long long)(row + r) * cols + column + lane] : 0;
#pragma unroll
        for (int s = 16; s; s /= 2) {
#pragma unroll
            for (int r = 0; r < 32; r++) {
                if (r & s) continue;
                const unsigned got = __shfl_xor_sync(~0u, lane & s ? v[r] : v[r | s], s);
                if (lane & s) v[r] = got;
                else v[r | s] = got;
            }
        }
#pragma unroll
        for (int c = 0; c < 32; c++)
            if (column + c < cols && row + lane < rows) y[(long long)(column + c) * rows + row + lane] = Bits(v[c]);
    }
}
