#pragma once
// The FP4 entries of the indexer in registers: e2m1 codes as f16, group scales relative to the
// entry's largest.
#include "common/f16.cuh"
#include "common/types.cuh"

namespace ingot::kernels::index_keys {

// The largest of an entry's four ue8m0 bytes: its unit.
__forceinline__ u32 unit_of(u32 scales) {
  return max(max(scales & 0xffu, scales >> 8 & 0xffu), max(scales >> 16 & 0xffu, scales >> 24));
}
// 2^(unit - 127); NaN for 255.
__forceinline__ float unit_value(u32 unit) {
  return __uint_as_float(unit == 255 ? 0x7fffffffu : unit == 0 ? 0x00400000u : unit << 23);
}
// What widen() leaves out, 2^14, times the scale of group `group` over the unit, as two f16. Groups
// below 2^-28 of the unit become zero; above 2^-23 everything is exact.
__forceinline__ u32 relative_scale(u32 scales, int group, u32 unit) {
  const int exponent =
      static_cast<int>(scales >> (8 * group) & 0xffu) - static_cast<int>(unit) + 29;
  return exponent > 0 ? static_cast<u32>(exponent) * 0x04000400u : 0u;
}
// Eight codes as f16 pairs (n, n + 4) for n = 0 .. 3, times `scale`. An e2m1 code in the top bits
// of an f16 is 2^-14 of its value, denormals included.
__forceinline__ void widen(u32 codes, u32 scale, u32 (&pairs)[4]) {
#pragma unroll
  for (int n = 0; n < 4; ++n) {
    const u32 high = codes << (12 - 4 * n);
    pairs[n] = multiply_f16((high & 0x80008000u) | (high >> 3 & 0x0e000e00u), scale);
  }
}

}  // namespace ingot::kernels::index_keys
