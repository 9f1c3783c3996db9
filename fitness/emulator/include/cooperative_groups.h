// Groups of threads whose members are known without looking at who runs: block, tile of a warp, cluster, grid; and the
// threads that a branch left together.
#pragma once

namespace cooperative_groups {

namespace details {
inline unsigned rank_in_block() { return threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z); }
inline unsigned block_threads() { return blockDim.x * blockDim.y * blockDim.z; }
inline unsigned long long block_of_grid() {
    return blockIdx.x + static_cast<unsigned long long>(gridDim.x) * (blockIdx.y + static_cast<unsigned long long>(gridDim.y) * blockIdx.z);
}
inline unsigned long long grid_blocks() { return 1ull * gridDim.x * gridDim.y * gridDim.z; }
// Values of any size, eight bytes at a time.
template <class X, class One> X in_words(const X& value, One one) {
    static_assert(std::is_trivially_copyable_v<X>);
    X result = value;
    for (std::size_t at = 0; at < sizeof(X); at += 8) {
        const std::size_t bytes = sizeof(X) - at < 8 ? sizeof(X) - at : 8;
        std::uint64_t word = 0;
        std::memcpy(&word, reinterpret_cast<const char*>(&value) + at, bytes);
        word = one(word);
        std::memcpy(reinterpret_cast<char*>(&result) + at, &word, bytes);
    }
    return result;
}
}  // namespace details

class thread_block {
  public:
    static void sync(EVO_LINE) { __syncthreads(line); }
    static unsigned thread_rank() { return details::rank_in_block(); }
    static unsigned size() { return details::block_threads(); }
    static unsigned num_threads() { return size(); }
    static dim3 group_index() { return blockIdx; }
    static dim3 thread_index() { return threadIdx; }
    static dim3 dim_threads() { return blockDim; }
    static dim3 group_dim() { return blockDim; }
};
inline thread_block this_thread_block() { return {}; }

// The members of a warp that a mask names.
class warp_group {
  public:
    explicit warp_group(unsigned mask) : mask_(mask) {}
    void sync(EVO_LINE) const { __syncwarp(mask_, line); }
    unsigned thread_rank() const { return static_cast<unsigned>(__builtin_popcount(mask_ & ((1u << evo::lane()) - 1))); }
    unsigned size() const { return static_cast<unsigned>(__builtin_popcount(mask_)); }
    unsigned num_threads() const { return size(); }
    template <class X> X shfl(X value, int rank, EVO_LINE) const {
        return moved(evo::Kind::SHUFFLE, value, lane_of(static_cast<unsigned>(rank) % size()), line);
    }
    template <class X> X shfl_up(X value, unsigned delta, EVO_LINE) const {
        const unsigned self = thread_rank();
        return moved(evo::Kind::SHUFFLE, value, lane_of(self < delta ? self : self - delta), line);
    }
    template <class X> X shfl_down(X value, unsigned delta, EVO_LINE) const {
        const unsigned self = thread_rank();
        return moved(evo::Kind::SHUFFLE, value, lane_of(self + delta < size() ? self + delta : self), line);
    }
    template <class X> X shfl_xor(X value, unsigned lanes, EVO_LINE) const {
        const unsigned self = thread_rank(), other = self ^ lanes;
        return moved(evo::Kind::SHUFFLE, value, lane_of(other < size() ? other : self), line);
    }
    int any(int predicate, EVO_LINE) const { return __any_sync(mask_, predicate, line); }
    int all(int predicate, EVO_LINE) const { return __all_sync(mask_, predicate, line); }
    unsigned ballot(int predicate, EVO_LINE) const { return packed(__ballot_sync(mask_, predicate, line)); }
    template <class X> unsigned match_any(X value, EVO_LINE) const { return packed(__match_any_sync(mask_, value, line)); }

  private:
    template <class X> X moved(evo::Kind kind, X value, int lane, int line) const {
        return details::in_words(value, [&](std::uint64_t word) { return evo::shuffle(kind, mask_, word, lane, 32, line); });
    }
    int lane_of(unsigned rank) const {
        unsigned left = mask_;
        for (; rank && left; --rank) left &= left - 1;
        return left ? __builtin_ctz(left) : 0;
    }
    unsigned packed(unsigned lanes) const {
        unsigned result = 0, rank = 0;
        for (unsigned left = mask_; left; left &= left - 1) result |= (lanes >> __builtin_ctz(left) & 1) << rank++;
        return result;
    }
    unsigned mask_;
};

template <unsigned SIZE, class Parent = void> class thread_block_tile : public warp_group {
    static_assert(SIZE > 0 && SIZE <= 32 && (SIZE & (SIZE - 1)) == 0, "a tile has 1, 2, 4, 8, 16 or 32 threads here");

  public:
    thread_block_tile() : warp_group((SIZE == 32 ? ~0u : (1u << SIZE % 32) - 1) << (evo::lane() & ~(SIZE - 1) & 31)) {}
    static constexpr unsigned size() { return SIZE; }
    static constexpr unsigned num_threads() { return SIZE; }
    static unsigned thread_rank() { return details::rank_in_block() % SIZE; }
    static unsigned meta_group_rank() { return details::rank_in_block() / SIZE; }
    static unsigned meta_group_size() { return (details::block_threads() + SIZE - 1) / SIZE; }
};
template <unsigned SIZE> thread_block_tile<SIZE, thread_block> tiled_partition(const thread_block&) { return {}; }
template <unsigned SIZE, unsigned FROM, class P>
thread_block_tile<SIZE, thread_block_tile<FROM, P>> tiled_partition(const thread_block_tile<FROM, P>&) { return {}; }

class coalesced_group : public warp_group {
  public:
    explicit coalesced_group(unsigned mask) : warp_group(mask) {}
};
inline coalesced_group coalesced_threads(EVO_LINE) { return coalesced_group(__activemask(line)); }

class grid_group {
  public:
    static bool is_valid() { return evo::launched.cooperative; }
    static void sync(EVO_LINE) {
        if (!is_valid()) evo::fail("line %d: the grid waits for all its blocks, but the launch is not cooperative", line);
        evo::barrier(evo::Kind::ALL_BLOCKS, 0, line);
    }
    static unsigned long long thread_rank() { return details::block_of_grid() * details::block_threads() + details::rank_in_block(); }
    static unsigned long long size() { return details::grid_blocks() * details::block_threads(); }
    static unsigned long long num_threads() { return size(); }
    static unsigned long long block_rank() { return details::block_of_grid(); }
    static unsigned long long num_blocks() { return details::grid_blocks(); }
    static dim3 group_dim() { return gridDim; }
    static dim3 dim_blocks() { return gridDim; }
    static dim3 block_index() { return blockIdx; }
};
inline grid_group this_grid() { return {}; }

class cluster_group {
  public:
    static void sync(EVO_LINE) { evo::barrier(evo::Kind::ALL_BLOCKS, 0, line); }
    static unsigned block_rank() { return evo::block_rank(); }
    static unsigned num_blocks() { return evo::resident_blocks(); }
    static unsigned thread_rank() { return block_rank() * details::block_threads() + details::rank_in_block(); }
    static unsigned num_threads() { return num_blocks() * details::block_threads(); }
    static unsigned size() { return num_threads(); }
    static dim3 dim_blocks() { return evo::launched.cluster; }
    static dim3 block_index() {
        const auto size = evo::launched.cluster;
        return {blockIdx.x % size.x, blockIdx.y % size.y, blockIdx.z % size.z};
    }
    template <class X> static X* map_shared_rank(X* pointer, unsigned rank) {
        return static_cast<X*>(evo::mapped_shared(const_cast<std::remove_cv_t<X>*>(pointer), rank));
    }
};
inline cluster_group this_cluster() { return {}; }

template <class Group> void sync(const Group& group, EVO_LINE) { group.sync(line); }
template <class Group> auto thread_rank(const Group& group) { return group.thread_rank(); }
template <class Group> auto group_size(const Group& group) { return group.size(); }

}  // namespace cooperative_groups
