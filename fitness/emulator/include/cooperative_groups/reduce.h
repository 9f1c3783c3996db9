#pragma once
#include "../cooperative_groups.h"

namespace cooperative_groups {

template <class X> struct plus { X operator()(X a, X b) const { return a + b; } };
template <class X> struct less { X operator()(X a, X b) const { return b < a ? b : a; } };
template <class X> struct greater { X operator()(X a, X b) const { return a < b ? b : a; } };
template <class X> struct bit_and { X operator()(X a, X b) const { return a & b; } };
template <class X> struct bit_or { X operator()(X a, X b) const { return a | b; } };
template <class X> struct bit_xor { X operator()(X a, X b) const { return a ^ b; } };

// The result is every member's.
template <class Group, class X, class Op> X reduce(const Group& group, X value, Op op, EVO_LINE) {
    const unsigned size = group.size(), rank = group.thread_rank();
    for (unsigned distance = 1; distance < size; distance *= 2) {
        const X other = group.shfl_down(value, distance, line);
        if (rank + distance < size) value = op(value, other);
    }
    return group.shfl(value, 0, line);
}

}  // namespace cooperative_groups
