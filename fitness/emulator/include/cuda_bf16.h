#pragma once
#include "cuda_half_types.h"

EVO_HALF_TYPES(__nv_bfloat16, __nv_bfloat162, bfloat16, evo::encoded_bf16, evo::decoded_bf16)
using nv_bfloat16 = __nv_bfloat16;
using nv_bfloat162 = __nv_bfloat162;
