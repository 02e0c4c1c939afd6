#pragma once
// Jobs of moe_weight_tiles as e4m3 fragments of the tensor core. The ue8m0 scale of a row's 32
// columns goes into the exponents of the codes, relative to the row's reference, which is the same
// for all columns: then only the inputs' scales remain to be applied to sums of 128 columns. e4m3
// has room for twelve scales; where a row's four scales in a job do not fit, the sums of each 32
// columns are scaled as fp32 numbers instead. Nothing is rounded either way.
#include "common/ptx.cuh"
#include "common/types.cuh"

namespace ingot::kernels::moe {

// Code magnitudes 0 .. 3 and 4 .. 7 (0, 0.5, 1, 1.5; 2, 3, 4, 6) as e4m3 bytes, times 2^-5; with
// SCALE_STEP and SCALE_STEP_HIGH per power of two above that. Up to 2^11 all stay below NaN.
constexpr u32 MAGNITUDES = 0x14100800, MAGNITUDES_HIGH = 0x24201c18;
constexpr u32 SCALE_STEP = 0x08080800, SCALE_STEP_HIGH = 0x08080808;
constexpr int MOST_STEPS = 11;
// How far above the first largest scale of a row its reference is: what comes later may be larger.
constexpr int HEADROOM = 4;

// Eight codes of one word to two words of e4m3, bytes in the order of common/expert_rows.args.h.
// @param low, high  bytes of the magnitudes under the row's scale
__forceinline__ void codes_to_e4m3(u32 word, u32 low, u32 high, u32& first, u32& second) {
  const u32 swapped = ptx::permute(word, 0, 0x3120);
  // Byte i's magnitudes to nibble i: the multiplication adds two shifts of the word, by which the
  // fields of bytes 0, 2, 1, 3 come side by side. It runs beside the integer pipe, which limits.
  const u32 select = __umulhi(swapped & 0x0e0e0e0eu, 0x80080000u);         // >> 1, >> 13
  const u32 select_second = __umulhi(swapped & 0x70707070u, 0x10010000u);  // >> 4, >> 16
  first = ptx::permute(low, high, select) | (word & 0x80808080u);
  second = ptx::permute(low, high, select_second) | (word * 128u & 0x80808080u);
}

// The four ue8m0 bytes of a row in a job, first in the upper byte.
__forceinline__ u32 scale_bytes(u32 packed) {
  return packed << 1 | packed >> 31;
}
__forceinline__ int scale_byte(u32 bytes, int group) {
  return static_cast<int>(bytes >> (24 - 8 * group) & 0xffu);
}

// A row's reference: a ue8m0 byte, from its first four scales. Where these are all of zeros (byte
// 0) any will do.
__forceinline__ int reference_of(u32 bytes) {
  int largest = 0;
#pragma unroll
  for (int group = 0; group < 4; ++group)
    largest = max(largest, scale_byte(bytes, group));
  return largest == 0 ? 127 : min(largest + HEADROOM, 254);
}
// In each byte of a word.
__forceinline__ u32 in_each_byte(int reference) {
  return static_cast<u32>(reference) * 0x01010101u;
}
// How far each of four scales is below the reference, modulo 256.
// @param from  the reference in each byte
__forceinline__ u32 steps_below(u32 from, u32 bytes) {
  return ((from | 0x80808080u) - (bytes & 0x7f7f7f7fu)) ^ ((from ^ ~bytes) & 0x80808080u);
}
__forceinline__ bool fit(u32 below) {  // are all of them at most MOST_STEPS?
  static_assert(MOST_STEPS == 11, "15 less 4");
  return ((below | (below + 0x04040404u)) & 0xf0f0f0f0u) == 0;
}
// The magnitudes of group GROUP under its scale.
template <int GROUP>
__forceinline__ uint2 table_of(u32 below) {
  const u32 steps = ptx::permute(below, 0, 0x4440 | (3 - GROUP));
  return make_uint2(MAGNITUDES + MOST_STEPS * SCALE_STEP - steps * SCALE_STEP,
                    MAGNITUDES_HIGH + MOST_STEPS * SCALE_STEP_HIGH - steps * SCALE_STEP_HIGH);
}
// 2^steps for sums of one group that were multiplied without its scale. Scales 2^126 below the
// reference and less vanish.
__forceinline__ float factor_of(int reference, u32 bytes, int group) {
  const int exponent = 127 + scale_byte(bytes, group) - reference + MOST_STEPS;
  return __uint_as_float(static_cast<u32>(min(max(exponent, 0), 254)) << 23);
}
// What makes weights of a row's e4m3 numbers: 2^(reference - 127) * 2^5 / 2^11.
__forceinline__ float reference_value(int reference) {
  const int exponent = reference - 6;
  return __uint_as_float(exponent > 0 ? static_cast<u32>(exponent) << 23
                                      : 0x00400000u >> static_cast<u32>(-exponent));
}

}  // namespace ingot::kernels::moe
