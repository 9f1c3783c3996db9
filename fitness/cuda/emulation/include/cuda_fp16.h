#pragma once
#include "cuda_half_types.h"

namespace evo {
inline unsigned short encoded_fp16(float value) {
    const auto rounded = static_cast<_Float16>(value);
    unsigned short bits;
    std::memcpy(&bits, &rounded, sizeof bits);
    return bits;
}
inline float decoded_fp16(unsigned short bits) {
    _Float16 value;
    std::memcpy(&value, &bits, sizeof value);
    return static_cast<float>(value);
}
}  // namespace evo

EVO_HALF_TYPES(__half, __half2, half, evo::encoded_fp16, evo::decoded_fp16)
using half = __half;
using half2 = __half2;
