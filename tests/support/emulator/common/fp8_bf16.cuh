#pragma once
#include "common/bf16.cuh"
#include "common/fp8.cuh"

namespace ingot::kernels::fp8 {

inline u32 low_to_bf16(u32 word) {
  return pack_bf16(value_of(word & 0xff), value_of(word >> 8 & 0xff));
}
inline u32 high_to_bf16(u32 word) {
  return low_to_bf16(word >> 16);
}

}  // namespace ingot::kernels::fp8
