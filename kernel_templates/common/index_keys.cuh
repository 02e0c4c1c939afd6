#pragma once
// The FP4 entries of the indexer in registers: e2m1 codes as f16, group scales relative to the
// entry's largest.
#include "common/f16.cuh"
#include "common/fp8.cuh"
#include "common/ptx.cuh"
#include "common/types.cuh"

namespace ingot::kernels::index_keys {

// The largest of an entry's four ue8m0 bytes: its unit.
__forceinline__ u32 unit_of(u32 scales) {
  const u32 pairs = ptx::max_u16x2(scales & 0x00ff00ffu, ptx::permute(scales, 0, 0x4341u));
  return ptx::max_u16x2(pairs, pairs >> 16) & 0xffu;
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

// ---- as e4m3, for products of twice the rate. The largest group's codes are 2^6 times their value
// (6 becomes 384); groups down to 2^-14 of it are exact, below 2^-18 zero.

constexpr int E4M3_SHIFT = 6, E4M3_SCALES = 32;
// The e4m3 of the eight magnitudes, for a scale 2^-n of the unit; in shared memory, by n.
using E4m3Table = uint2[E4M3_SCALES];
// All threads of a warp call it.
__forceinline__ void fill(E4m3Table& table, int lane) {
  const float scale = __uint_as_float(static_cast<u32>(127 + E4M3_SHIFT - lane) << 23);
  table[lane] =
      make_uint2(fp8::from_floats(0.0f, 0.5f * scale) | fp8::from_floats(scale, 1.5f * scale) << 16,
                 fp8::from_floats(2.0f * scale, 3.0f * scale) |
                     fp8::from_floats(4.0f * scale, 6.0f * scale) << 16);
}
// The row of the table for group `group` of an entry.
__forceinline__ uint2 magnitudes(const E4m3Table& table, u32 scales, int group, u32 unit) {
  return table[min(unit - ptx::permute(scales, 0, 0x4440u + static_cast<u32>(group)),
                   static_cast<u32>(E4M3_SCALES - 1))];
}
// Eight codes as e4m3: the first four, and the last four.
__forceinline__ void to_e4m3(u32 codes, uint2 magnitude, u32& first, u32& last) {
  const u32 selectors = codes & 0x77777777u, high = codes << 4;
  first = ptx::permute(magnitude.x, magnitude.y, selectors) |
          (ptx::permute(high, codes, 0x5140u) & 0x80808080u);
  last = ptx::permute(magnitude.x, magnitude.y, selectors >> 16) |
         (ptx::permute(high, codes, 0x7362u) & 0x80808080u);
}

}  // namespace ingot::kernels::index_keys
