#pragma once
// e4m3 weights as bf16, exactly, for products with bf16 inputs.
#include "common/types.cuh"

namespace ingot::kernels::fp8 {

// e4m3 exponent and mantissa, moved to where bf16 has them, are the value times 2^-120 (denormals
// too); one product puts that right. NaN codes, which weights do not hold, become 480.
__forceinline__ u32 spread_to_bf16(u32 spread) {
  const u32 bits = ((spread & 0x00800080u) << 8) | ((spread & 0x007f007fu) << 4);
  u32 result;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;"
      : "=r"(result)
      : "r"(bits), "r"(0x7b807b80u), "r"(0x80008000u));  // * 2^120 + -0
  return result;
}
// The two low and the two high bytes of a word.
__forceinline__ u32 low_to_bf16(u32 word) {
  return spread_to_bf16(__byte_perm(word, 0, 0x4140));
}
__forceinline__ u32 high_to_bf16(u32 word) {
  return spread_to_bf16(__byte_perm(word, 0, 0x4342));
}

}  // namespace ingot::kernels::fp8
