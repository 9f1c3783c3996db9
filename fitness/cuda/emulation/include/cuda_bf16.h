#pragma once
#include "cuda_half_types.h"

namespace evo {
inline unsigned short encoded_bf16(float value) {
    std::uint32_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    if (value != value) return 0x7fff;
    return static_cast<unsigned short>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);  // ties to even
}
inline float decoded_bf16(unsigned short bits) {
    const std::uint32_t wide = static_cast<std::uint32_t>(bits) << 16;
    float value;
    std::memcpy(&value, &wide, sizeof value);
    return value;
}
}  // namespace evo

EVO_HALF_TYPES(__nv_bfloat16, __nv_bfloat162, bfloat16, evo::encoded_bf16, evo::decoded_bf16)
using nv_bfloat16 = __nv_bfloat16;
using nv_bfloat162 = __nv_bfloat162;
