#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

/// Sixteen floats that the compiler maps to whatever registers a machine has. Every loop of the
/// reference engine that sums many values keeps sixteen partial sums, lane l taking the elements
/// i ≡ l (mod 16) in ascending order, and folds them by one fixed tree: the same bits with
/// AVX-512, AVX2 and SSE2. (No fused multiply-add: the project compiles with -ffp-contract=off.)
///
/// Operations take vectors by reference and are always inlined, so that one source serves every
/// clone of a function marked INGOT_TARGET_CLONES.
namespace ingot::reference {

inline constexpr int kLanes = 16;

using Lanes = float __attribute__((vector_size(64)));
using LaneBits = std::uint32_t __attribute__((vector_size(64)));
using LaneHalves = std::uint16_t __attribute__((vector_size(32)));
using LaneBytes = std::uint8_t __attribute__((vector_size(16)));

// The loader's resolver runs before a sanitizer is ready: those builds use the plain version.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && \
    !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define INGOT_TARGET_CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define INGOT_TARGET_CLONES
#endif
#define INGOT_LANE_OP [[gnu::always_inline]] inline
/// In front of a loop over a register block: its sums stay in registers only when it is unrolled.
#if defined(__clang__)
#define INGOT_UNROLL _Pragma("clang loop unroll(full)")
#else
#define INGOT_UNROLL _Pragma("GCC unroll 16")
#endif

INGOT_LANE_OP void load(Lanes& v, const float* from) {
  std::memcpy(&v, from, sizeof v);
}

/// @param from  16 bf16, at any address
INGOT_LANE_OP void load_bf16(Lanes& v, const void* from) {
  LaneHalves halves;
  std::memcpy(&halves, from, sizeof halves);
  const LaneBits bits = __builtin_convertvector(halves, LaneBits) << 16;
  std::memcpy(&v, &bits, sizeof v);
}

INGOT_LANE_OP void store(float* to, const Lanes& v) {
  std::memcpy(to, &v, sizeof v);
}

/// As bf16_round, lane by lane.
INGOT_LANE_OP void round_bf16(Lanes& v) {
  LaneBits bits;
  std::memcpy(&bits, &v, sizeof bits);
  const LaneBits rounded = (bits + ((bits >> 16) & 1) + 0x7FFF) & 0xFFFF0000U;
  const LaneBits quiet = (bits | 0x400000) & 0xFFFF0000U;
  bits = (bits & 0x7FFFFFFF) > 0x7F800000 ? quiet : rounded;
  std::memcpy(&v, &bits, sizeof v);
}

/// As e4m3_value, sixteen bytes at once.
INGOT_LANE_OP void load_e4m3(Lanes& v, const std::uint8_t* from) {
  LaneBytes bytes;
  std::memcpy(&bytes, from, sizeof bytes);
  // Two steps: the compiler has an instruction for each, and none for both at once.
  const LaneHalves halves = __builtin_convertvector(bytes, LaneHalves);
  const LaneBits wide = __builtin_convertvector(halves, LaneBits);
  const LaneBits magnitude = wide & 0x7F;
  const Lanes small = __builtin_convertvector(magnitude, Lanes) * 0x1p-9F;
  LaneBits small_bits;
  std::memcpy(&small_bits, &small, sizeof small_bits);
  LaneBits bits = magnitude < 8 ? small_bits : (magnitude << 20) + (120U << 23);
  bits = magnitude == 0x7F ? bits | 0x7FC00000 : bits;
  bits |= (wide & 0x80) << 24;
  std::memcpy(&v, &bits, sizeof v);
}

/// Sixteen e2m1 values from eight bytes, low nibble first; as e2m1_value.
INGOT_LANE_OP void load_e2m1(Lanes& v, const std::uint8_t* from) {
  std::uint64_t packed;
  std::memcpy(&packed, from, sizeof packed);
  LaneBits wide;
  for (int i = 0; i < kLanes; ++i)
    wide[i] = i < 8 ? static_cast<std::uint32_t>(packed) : static_cast<std::uint32_t>(packed >> 32);
  wide = (wide >> LaneBits{0, 4, 8, 12, 16, 20, 24, 28, 0, 4, 8, 12, 16, 20, 24, 28}) & 15;
  const LaneBits magnitude = wide & 7;
  const Lanes small = __builtin_convertvector(magnitude, Lanes) * 0.5F;
  LaneBits small_bits;
  std::memcpy(&small_bits, &small, sizeof small_bits);
  LaneBits bits = magnitude < 2 ? small_bits : (magnitude << 22) + (126U << 23);
  bits |= (wide & 8) << 28;
  std::memcpy(&v, &bits, sizeof v);
}

using FourLanes = float __attribute__((vector_size(16)));

/// l + (l+8), then + (l+4): the first two steps of a sum of all lanes.
INGOT_LANE_OP void fold_to_four(const Lanes& v, FourLanes& folded) {
  using Eight = float __attribute__((vector_size(32)));
  Eight low8;
  Eight high8;
  std::memcpy(&low8, &v, sizeof low8);
  std::memcpy(&high8, reinterpret_cast<const char*>(&v) + sizeof low8, sizeof high8);
  low8 += high8;
  FourLanes high4;
  std::memcpy(&folded, &low8, sizeof folded);
  std::memcpy(&high4, reinterpret_cast<const char*>(&low8) + sizeof folded, sizeof high4);
  folded += high4;
}

/// The sum of all lanes: l + (l+8), then + (l+4), + (l+2), + (l+1).
INGOT_LANE_OP float fold(const Lanes& v) {
  FourLanes four;
  fold_to_four(v, four);
  return (four[0] + four[2]) + (four[1] + four[3]);
}

/// fold() of four vectors at once.
/// @param to  4 floats
INGOT_LANE_OP void fold_four(const Lanes* v, float* to) {
  FourLanes a;
  FourLanes b;
  FourLanes c;
  FourLanes d;
  fold_to_four(v[0], a);
  fold_to_four(v[1], b);
  fold_to_four(v[2], c);
  fold_to_four(v[3], d);
  // Lanes 0 and 2, and 1 and 3, of each vector meet.
  const FourLanes ab = __builtin_shufflevector(a, b, 0, 1, 4, 5) +  // a0+a2 a1+a3 b0+b2 b1+b3
                       __builtin_shufflevector(a, b, 2, 3, 6, 7);
  const FourLanes cd =
      __builtin_shufflevector(c, d, 0, 1, 4, 5) + __builtin_shufflevector(c, d, 2, 3, 6, 7);
  const FourLanes sums =
      __builtin_shufflevector(ab, cd, 0, 2, 4, 6) + __builtin_shufflevector(ab, cd, 1, 3, 5, 7);
  std::memcpy(to, &sums, sizeof sums);
}

}  // namespace ingot::reference
