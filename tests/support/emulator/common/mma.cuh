#pragma once
#include "common/bf16.cuh"
#include "common/f16.cuh"
#include "common/fp8.cuh"

namespace ingot::kernels::mma {

// D (16 x 8) += A (16 x 16) * B (16 x 8), as the hardware deals fragments to lanes.
struct Fragments {
  float d[4];
  u32 a[4], b[2];
};
using ToFloat = float (*)(u32 bits);

inline void multiply(const void* const* operands, void* const* results, const void* extra) {
  const ToFloat value = *static_cast<const ToFloat*>(extra);
  float a[16][16], b[16][8];
  for (int lane = 0; lane < 32; ++lane) {
    const auto& f = *static_cast<const Fragments*>(operands[lane]);
    const int g = lane / 4, c = lane % 4;
    for (int half = 0; half < 2; ++half) {
      for (int i = 0; i < 4; ++i)
        a[g + i % 2 * 8][2 * c + half + i / 2 * 8] = value(f.a[i] >> (16 * half) & 0xffffu);
      for (int i = 0; i < 2; ++i)
        b[2 * c + half + i * 8][g] = value(f.b[i] >> (16 * half) & 0xffffu);
    }
  }
  for (int lane = 0; lane < 32; ++lane) {
    const auto& f = *static_cast<const Fragments*>(operands[lane]);
    for (int i = 0; i < 4; ++i) {
      double sum = f.d[i];
      for (int k = 0; k < 16; ++k)
        sum += static_cast<double>(a[lane / 4 + i / 2 * 8][k]) * b[k][lane % 4 * 2 + i % 2];
      static_cast<float*>(results[lane])[i] = static_cast<float>(sum);
    }
  }
}
inline constexpr ToFloat kF16 = [](u32 bits) { return f16_value(bits); };
inline constexpr ToFloat kBf16 = [](u32 bits) { return __uint_as_float(bits << 16); };

inline void f16(float (&d)[4], u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) {
  const Fragments f{{d[0], d[1], d[2], d[3]}, {a0, a1, a2, a3}, {b0, b1}};
  test::emulator::warp_collective(&kF16, &f, d, multiply, &kF16);
}
inline void bf16(float (&d)[4], u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) {
  const Fragments f{{d[0], d[1], d[2], d[3]}, {a0, a1, a2, a3}, {b0, b1}};
  test::emulator::warp_collective(&kBf16, &f, d, multiply, &kBf16);
}

// The block-scaled product: 16 x 32 times 32 x 8 codes, scales as PTX deals them to lanes.
struct ScaledFragments {
  float d[4];
  u32 a[4], b[2], scale_a, scale_b;
};
inline void multiply_block_scaled(const void* const* operands, void* const* results, const void*) {
  const auto of = [&](int lane) -> const ScaledFragments& {
    return *static_cast<const ScaledFragments*>(operands[lane]);
  };
  float a[16][32], b[32][8];
  double row_scale[16], column_scale[8];
  for (int g = 0; g < 8; ++g) {
    row_scale[g] = std::ldexp(1.0, static_cast<int>(of(4 * g).scale_a & 0xff) - 127);
    row_scale[g + 8] = std::ldexp(1.0, static_cast<int>(of(4 * g + 1).scale_a & 0xff) - 127);
    column_scale[g] = std::ldexp(1.0, static_cast<int>(of(4 * g).scale_b & 0xff) - 127);
  }
  for (int lane = 0; lane < 32; ++lane) {
    const int g = lane / 4, c = lane % 4;
    for (int byte = 0; byte < 4; ++byte) {
      for (int i = 0; i < 4; ++i)
        a[g + i % 2 * 8][4 * c + byte + i / 2 * 16] =
            fp8::value_of(of(lane).a[i] >> (8 * byte) & 0xff);
      for (int i = 0; i < 2; ++i)
        b[4 * c + byte + i * 16][g] = fp8::value_of(of(lane).b[i] >> (8 * byte) & 0xff);
    }
  }
  for (int lane = 0; lane < 32; ++lane)
    for (int i = 0; i < 4; ++i) {
      const int row = lane / 4 + i / 2 * 8, column = lane % 4 * 2 + i % 2;
      double sum = 0;
      for (int k = 0; k < 32; ++k)
        sum += static_cast<double>(a[row][k]) * b[k][column];
      static_cast<float*>(results[lane])[i] =
          static_cast<float>(of(lane).d[i] + sum * row_scale[row] * column_scale[column]);
    }
}
inline constexpr char kBlockScaled = 0;
inline void e4m3_block_scaled(float (&d)[4], u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1,
                              u32 scale_a, u32 scale_b) {
  const ScaledFragments f{{d[0], d[1], d[2], d[3]}, {a0, a1, a2, a3}, {b0, b1}, scale_a, scale_b};
  test::emulator::warp_collective(&kBlockScaled, &f, d, multiply_block_scaled, nullptr);
}

inline void e4m3(float (&d)[4], u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) {
  e4m3_block_scaled(d, a0, a1, a2, a3, b0, b1, 0x7f7f7f7f, 0x7f7f7f7f);
}

}  // namespace ingot::kernels::mma
