/*! evo
requires = "depth % 32 == 0"

[[launch]]
kernel = "scores"
grid = ["ceil_div(cols, 64)", "ceil_div(rows, 64)"]
block = [128]
args = ["q", "keys", "y", "rows", "cols", "depth"]
*/
#include <cute/tensor.hpp>
using namespace cute;
using Bf16 = cute::bfloat16_t;

// Eight elements a thread along depth; rows of shared memory are padded against conflicts of banks.
using Eight = Copy_Atom<UniversalCopy<uint128_t>, Bf16>;
using Padded = Layout<Shape<_64, _32>, Stride<_40, _1>>;

extern "C" __global__ void __launch_bounds__(128) scores(const T* q, const T* keys, T* y, int rows, int cols, int depth) {
    const auto block = Shape<_64, _64, _32>{};
    const auto here = make_coord(int(blockIdx.y), int(blockIdx.x), _);
    const Tensor all_q = make_tensor(make_gmem_ptr(reinterpret_cast<const Bf16*>(q)), make_shape(rows, depth), make_stride(depth, _1{}));
    const Tensor all_keys = make_tensor(make_gmem_ptr(reinterpret_cast<const Bf16*>(keys)), make_shape(cols, depth), make_stride(depth, _1{}));
    Tensor all_y = make_tensor(make_gmem_ptr(reinterpret_cast<Bf16*>(y)), make_shape(rows, cols), make_stride(cols, _1{}));
    const Tensor tiles_q = local_tile(all_q, block, here, Step<_1, X, _1>{});  // (64, 32, steps)
    const Tensor tiles_keys = local_tile(all_keys, block, here, Step<X, _1, _1>{});
    Tensor tile_y = local_tile(all_y, block, here, Step<_1, _1, X>{});
    // The same tiles of coordinates, which tell what lies outside of the matrices.
    const Tensor where_q = local_tile(make_identity_tensor(shape(all_q)), block, here, Step<_1, X, _1>{});
    const Tensor where_keys = local_tile(make_identity_tensor(shape(all_keys)), block, here, Step<X, _1, _1>{});
    const Tensor where_y = local_tile(make_identity_tensor(shape(all_y)), block, here, Step<_1, _1, X>{});

    __shared__ alignas(16) Bf16 memory_q[64 * 40], memory_keys[64 * 40];
    Tensor shared_q = make_tensor(make_smem_ptr(memory_q), Padded{});
    Tensor shared_keys = make_tensor(make_smem_ptr(memory_keys), Padded{});
    const auto copies = make_tiled_copy(Eight{}, Layout<Shape<_32, _4>, Stride<_4, _1>>{}, Layout<Shape<_1, _8>>{});
    const auto my_copy = copies.get_slice(threadIdx.x);
    const Tensor from_q = my_copy.partition_S(tiles_q), from_keys = my_copy.partition_S(tiles_keys);
    const Tensor at_q = my_copy.partition_S(where_q), at_keys = my_copy.partition_S(where_keys);
    Tensor to_q = my_copy.partition_D(shared_q), to_keys = my_copy.partition_D(shared_keys);

    const auto warps = make_tiled_mma(SM80_16x8x16_F32BF16BF16F32_TN{}, Layout<Shape<_2, _2>>{});
    const auto mine = warps.get_slice(threadIdx.x);
    const Tensor part_q = mine.partition_A(shared_q);
    const Tensor part_keys = mine.partition_B(shared_keys);
    Tensor held_q = mine.make_fragment_A(part_q);
    Tensor held_keys = mine.make_fragment_B(part_keys);
    Tensor part_y = mine.partition_C(tile_y);
    const Tensor at_y = mine.partition_C(where_y);
    Tensor sums = mine.make_fragment_C(part_y);
    clear(sums);

    const auto fetch = [&](const auto& from, const auto& at, auto& to, int most, int step) {
        for (int i = 0; i < size<1>(to); i++)
            for (int j = 0; j < size<2>(to); j++)
                if (get<0>(at(0, i, j, step)) < most) copy(copies, from(_, i, j, step), to(_, i, j));
                else clear(to(_, i, j));
    };
    for (int step = 0; step < size<3>(from_q); step++) {
        __syncthreads();
        fetch(from_q, at_q, to_q, rows, step);
        fetch(from_keys, at_keys, to_keys, cols, step);
        __syncthreads();
        copy(part_q, held_q);
        copy(part_keys, held_keys);
        gemm(warps, held_q, held_keys, sums);
    }
    for (int i = 0; i < size(sums); i++)
        if (elem_less(at_y(i), shape(all_y))) part_y(i) = Bf16(sums(i));
}
