#pragma once
#include <stdexcept>

#include "common/types.cuh"
#include "tests/support/emulator/cuda.hpp"

namespace ingot::kernels {

inline float to_float(bf16 value) {
  return __uint_as_float(static_cast<u32>(value.bits) << 16);
}
inline u32 bf16_bits(float value) {
  const u32 bits = __float_as_uint(value);
  if (value != value) return 0x7fffu;
  return (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
}
inline bf16 to_bf16(float value) {
  return {static_cast<u16>(bf16_bits(value))};
}
inline float low_to_float(u32 pair) {
  return __uint_as_float(pair << 16);
}
inline float high_to_float(u32 pair) {
  return __uint_as_float(pair & 0xffff0000u);
}
inline u32 pack_bf16(float low, float high) {
  return bf16_bits(low) | (bf16_bits(high) << 16);
}
inline u32 pack_bf16_relu(float low, float high) {
  return pack_bf16(low < 0 ? 0.0f : low, high < 0 ? 0.0f : high);
}

template <int COUNT>
struct Bf16Vector {
  u32 pairs[COUNT / 2];

  static Bf16Vector load(const bf16* from) {
    check(from);
    Bf16Vector v;
    std::memcpy(&v, from, sizeof v);
    return v;
  }
  void store(bf16* to) const {
    check(to);
    std::memcpy(to, this, sizeof *this);
  }
  static void check(const void* at) {
    if (reinterpret_cast<std::uintptr_t>(at) % (2 * COUNT) != 0)
      throw std::runtime_error("a vector is not aligned to its size");
  }
};

}  // namespace ingot::kernels
