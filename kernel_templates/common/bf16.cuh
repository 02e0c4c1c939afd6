#pragma once
// bf16 in device code: unpacking, rounding, 4-, 8- and 16-byte vectors of it.
#include "common/types.cuh"

namespace ingot::kernels {

inline float to_float(bf16 value) {
  return __uint_as_float(static_cast<u32>(value.bits) << 16);
}

// Round to nearest, ties to even; NaN stays NaN (the bit pattern 0x7fff).
inline bf16 to_bf16(float value) {
  bf16 result;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(result.bits) : "f"(value));
  return result;
}

// The low half of a packed pair is the element with the lower index.
inline float low_to_float(u32 pair) {
  return __uint_as_float(pair << 16);
}
inline float high_to_float(u32 pair) {
  return __uint_as_float(pair & 0xffff0000u);
}
inline u32 pack_bf16(float low, float high) {
  u32 pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}

// The same of max(0, value); NaN stays NaN.
inline u32 pack_bf16_relu(float low, float high) {
  u32 pair;
  asm("cvt.rn.relu.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}

// COUNT consecutive bf16 of global memory in registers; COUNT is 2, 4 or 8 and the address aligned
// to the whole vector.
template <int COUNT>
struct Bf16Vector {
  static_assert(COUNT == 2 || COUNT == 4 || COUNT == 8, "4, 8 or 16 bytes");
  u32 pairs[COUNT / 2];

  static Bf16Vector load(const bf16* from) {
    Bf16Vector v;
    if constexpr (COUNT == 8) {
      asm volatile("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                   : "=r"(v.pairs[0]), "=r"(v.pairs[1]), "=r"(v.pairs[2]), "=r"(v.pairs[3])
                   : "l"(from));
    } else if constexpr (COUNT == 4) {
      asm volatile("ld.global.v2.u32 {%0, %1}, [%2];"
                   : "=r"(v.pairs[0]), "=r"(v.pairs[1])
                   : "l"(from));
    } else {
      asm volatile("ld.global.u32 %0, [%1];" : "=r"(v.pairs[0]) : "l"(from));
    }
    return v;
  }

  void store(bf16* to) const {
    if constexpr (COUNT == 8) {
      asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(pairs[0]),
                   "r"(pairs[1]), "r"(pairs[2]), "r"(pairs[3])
                   : "memory");
    } else if constexpr (COUNT == 4) {
      asm volatile("st.global.v2.u32 [%0], {%1, %2};" ::"l"(to), "r"(pairs[0]), "r"(pairs[1])
                   : "memory");
    } else {
      asm volatile("st.global.u32 [%0], %1;" ::"l"(to), "r"(pairs[0]) : "memory");
    }
  }
};

}  // namespace ingot::kernels
