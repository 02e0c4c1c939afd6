#pragma once
// Approximations of the special function unit.

namespace ingot::kernels {

// 1 / x, at most one unit in the last place off; infinity for 0 and denormals, NaN for NaN.
__forceinline__ float reciprocal_approx(float x) {
  float value;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(value) : "f"(x));
  return value;
}

}  // namespace ingot::kernels
