/*! evo
requires = "n % 8 == 0 and k % 32 == 0"

[[launch]]
kernel = "bf16_gemm"
grid = ["ceil_div(n, 64)", "ceil_div(m, 64)"]
block = [128]
args = ["a", "b", "c", "m", "n", "k"]
*/
// c = a b in bf16 by CuTe's layouts: tiles of 64 x 64 x 32 through shared memory, four warps with 16 x 8 x 16 products.
#include <cute/tensor.hpp>
using namespace cute;

extern "C" __global__ void __launch_bounds__(128) bf16_gemm(const T* a, const T* b, T* c, int m, int n, int k) {
    using E = cute::bfloat16_t;
    const auto tile = Shape<_64, _64, _32>{};
    const auto here = make_coord(int(blockIdx.y), int(blockIdx.x), _);
    const Tensor all_a = make_tensor(make_gmem_ptr(reinterpret_cast<const E*>(a)), make_shape(m, k), make_stride(k, _1{}));
    const Tensor all_b = make_tensor(make_gmem_ptr(reinterpret_cast<const E*>(b)), make_shape(n, k), make_stride(_1{}, n));
    Tensor all_c = make_tensor(make_gmem_ptr(reinterpret_cast<E*>(c)), make_shape(m, n), make_stride(n, _1{}));
    const Tensor tiles_a = local_tile(all_a, tile, here, Step<_1, X, _1>{});  // (64, 32, steps)
    const Tensor tiles_b = local_tile(all_b, tile, here, Step<X, _1, _1>{});
    Tensor tile_c = local_tile(all_c, tile, here, Step<_1, _1, X>{});
    // The same tiles of coordinates, which tell what lies outside of the matrices.
    const Tensor where_a = local_tile(make_identity_tensor(shape(all_a)), tile, here, Step<_1, X, _1>{});
    const Tensor where_b = local_tile(make_identity_tensor(shape(all_b)), tile, here, Step<X, _1, _1>{});
    const Tensor where_c = local_tile(make_identity_tensor(shape(all_c)), tile, here, Step<_1, _1, X>{});

    __shared__ alignas(16) E memory_a[64 * 40], memory_b[72 * 32];  // rows are padded against conflicts of banks
    Tensor shared_a = make_tensor(make_smem_ptr(memory_a), Layout<Shape<_64, _32>, Stride<_40, _1>>{});
    Tensor shared_b = make_tensor(make_smem_ptr(memory_b), Layout<Shape<_64, _32>, Stride<_1, _72>>{});
    // Eight elements a thread: along k of a, along n of b.
    using Eight = Copy_Atom<UniversalCopy<uint128_t>, E>;
    const auto copy_a = make_tiled_copy(Eight{}, Layout<Shape<_32, _4>, Stride<_4, _1>>{}, Layout<Shape<_1, _8>>{});
    const auto copy_b = make_tiled_copy(Eight{}, Layout<Shape<_8, _16>>{}, Layout<Shape<_8, _1>>{});
    const auto mine_a = copy_a.get_slice(threadIdx.x);
    const auto mine_b = copy_b.get_slice(threadIdx.x);
    const Tensor from_a = mine_a.partition_S(tiles_a);
    const Tensor from_b = mine_b.partition_S(tiles_b);
    Tensor to_a = mine_a.partition_D(shared_a);
    Tensor to_b = mine_b.partition_D(shared_b);
    const Tensor at_a = mine_a.partition_S(where_a);
    const Tensor at_b = mine_b.partition_S(where_b);

    const auto warps = make_tiled_mma(SM80_16x8x16_F32BF16BF16F32_TN{}, Layout<Shape<_2, _2>>{});
    const auto mine = warps.get_slice(threadIdx.x);
    const Tensor part_a = mine.partition_A(shared_a);
    const Tensor part_b = mine.partition_B(shared_b);
    Tensor held_a = mine.make_fragment_A(part_a);
    Tensor held_b = mine.make_fragment_B(part_b);
    Tensor part_c = mine.partition_C(tile_c);
    const Tensor at_c = mine.partition_C(where_c);
    Tensor sums = mine.make_fragment_C(part_c);
    clear(sums);

    for (int step = 0; step < size<3>(from_a); step++) {
        __syncthreads();
        for (int i = 0; i < size<1>(to_a); i++)
            for (int j = 0; j < size<2>(to_a); j++) {
                if (get<0>(at_a(0, i, j, step)) < m) copy(copy_a, from_a(_, i, j, step), to_a(_, i, j));
                else clear(to_a(_, i, j));
            }
        for (int i = 0; i < size<1>(to_b); i++)
            for (int j = 0; j < size<2>(to_b); j++) {
                if (get<0>(at_b(0, i, j, step)) < n) copy(copy_b, from_b(_, i, j, step), to_b(_, i, j));
                else clear(to_b(_, i, j));
            }
        __syncthreads();
        copy(part_a, held_a);
        copy(part_b, held_b);
        gemm(warps, held_a, held_b, sums);
    }
    for (int i = 0; i < size(sums); i++)
        if (elem_less(at_c(i), shape(all_c))) part_c(i) = E(sums(i));
}
