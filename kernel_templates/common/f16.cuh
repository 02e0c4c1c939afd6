#pragma once
// Packed f16 pairs in registers (the low half is the element with the lower index) and the base-2
// exponential of the softmax.
#include "common/types.cuh"

namespace ingot::kernels {

// Round to nearest even; beyond 65504 becomes infinity.
__forceinline__ u32 pack_f16(float low, float high) {
  u32 pair;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}
__forceinline__ float f16_low_to_float(u32 pair) {
  float value;
  asm("{.reg .b16 low, high;\n"
      "mov.b32 {low, high}, %1;\n"
      "cvt.f32.f16 %0, low;}"
      : "=f"(value)
      : "r"(pair));
  return value;
}
__forceinline__ float f16_high_to_float(u32 pair) {
  float value;
  asm("{.reg .b16 low, high;\n"
      "mov.b32 {low, high}, %1;\n"
      "cvt.f32.f16 %0, high;}"
      : "=f"(value)
      : "r"(pair));
  return value;
}
// Denormals are kept, in operands and in the result.
__forceinline__ u32 multiply_f16(u32 a, u32 b) {
  u32 product;
  asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(product) : "r"(a), "r"(b));
  return product;
}
// 2^x with 22 bits; 0 for -inf, NaN for NaN.
__forceinline__ float exp2_approx(float x) {
  float value;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(value) : "f"(x));
  return value;
}

}  // namespace ingot::kernels
