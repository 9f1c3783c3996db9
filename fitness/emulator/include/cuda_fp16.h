#pragma once
#include "cuda_half_types.h"

EVO_HALF_TYPES(__half, __half2, half, evo::encoded_fp16, evo::decoded_fp16)
using half = __half;
using half2 = __half2;
