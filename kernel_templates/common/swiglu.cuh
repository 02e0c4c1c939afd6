#pragma once
// The activation of an expert.

namespace ingot::kernels {

// silu of the clamped gate times the clamped up. NaN passes the clamps. The operations and their
// order are the reference's in fp32; only expf, at most one unit in the last place off, may differ.
// @param limit  clamp of gate (above) and up (both sides); infinity for none
__forceinline__ float swiglu(float gate, float up, float limit) {
  // Comparisons and not fminf, which would drop a NaN.
  const float g = gate > limit ? limit : gate;
  const float u = up > limit ? limit : up < -limit ? -limit : up;
  // The sum is kept from being fused into expf's last product: the reference rounds in between.
  return g / __fadd_rn(1.0f, expf(-g)) * u;
}

}  // namespace ingot::kernels
