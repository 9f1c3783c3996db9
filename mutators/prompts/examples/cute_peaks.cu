/*! evo
[tune]
VECTORS = [4, 2, 8]

[[launch]]
kernel = "row_peaks<true>"
when = "cols * sizeof_T % 16 == 0"
grid = ["rows"]
block = [128]
args = ["x", "y", "cols"]

[[launch]]
kernel = "row_peaks<false>"
when = "cols * sizeof_T % 16 != 0"
grid = ["rows"]
block = [128]
args = ["x", "y", "cols"]
*/
#include <cute/tensor.hpp>
using namespace cute;

// A block per row: tiles of 128 threads times one load each, VECTORS of them in flight; what is left over goes alone.
template <bool WIDE> __global__ void __launch_bounds__(128) row_peaks(const T* x, T* y, int cols) {
    constexpr int LANES = WIDE ? 16 / sizeof(T) : 1;
    using Load = conditional_t<WIDE, uint128_t, uint_bit_t<8 * sizeof(T)>>;
    const auto tiler = make_shape(Int<128 * LANES * VECTORS>{});
    const auto copies = make_tiled_copy(Copy_Atom<UniversalCopy<Load>, T>{}, Layout<_128>{}, Layout<Int<LANES>>{});
    const auto mine = copies.get_slice(threadIdx.x);
    const Tensor row = make_tensor(make_gmem_ptr(x + (long long)blockIdx.x * cols), make_shape(cols));
    const Tensor tiles = zipped_divide(row, tiler);  // ((tile), (tiles))
    const int whole = cols / size(tiler);
    ACC peak = 0;
    for (int step = 0; step < whole; step++) {
        const Tensor from = mine.partition_S(tiles(_, step));
        Tensor held = make_fragment_like(from);
        copy(copies, from, held);  // all of its loads are issued before the first is used
        for (int i = 0; i < size(held); i++) peak = fmaxf(peak, fabsf(load(held(i))));
    }
    for (int c = whole * size(tiler) + threadIdx.x; c < cols; c += 128) peak = fmaxf(peak, fabsf(load(row(c))));
    __shared__ ACC peaks[4];
    for (int d = 16; d; d /= 2) peak = fmaxf(peak, __shfl_xor_sync(~0u, peak, d));
    if (threadIdx.x % 32 == 0) peaks[threadIdx.x / 32] = peak;
    __syncthreads();
    if (threadIdx.x == 0) y[blockIdx.x] = store(fmaxf(fmaxf(peaks[0], peaks[1]), fmaxf(peaks[2], peaks[3])));
}
