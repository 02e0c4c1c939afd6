#pragma once
// The multiplication of a job: 32 weight rows x 128 columns of e2m1 times up to 8 quantised tokens.
// Weight rows are the M of the mma, tokens its N. e2m1 and e4m3 are exact in f16, the sums of 32
// columns are fp32 and take the row's scale as fp32 numbers: no scale is out of range, and nothing
// is rounded but the sums themselves.
#include "common/fp8.cuh"
#include "common/mma.cuh"
#include "common/types.cuh"
#include "moe_decode.args.h"

namespace ingot::kernels::moe {

// Eight codes of one word to four f16 pairs, as value * 2^-14: the packer put every code so that a
// mask leaves its sign in bit 15 and its magnitude in bits 11:9, where it reads as an f16 number (a
// denormal for 0.5). Shifts to the left run beside the integer pipe, which is what limits.
constexpr float CODE_FACTOR = 16384.0f;
__forceinline__ void codes_to_f16(u32 word, u32 (&pairs)[4]) {
  const u32 rest = ((word >> 3) & 0x0e0e0e0eu) | ((word << 7) & 0x80808080u);
  pairs[0] = word & 0x8e008e00u;
  pairs[1] = (word << 8) & 0x8e008e00u;
  pairs[2] = rest & 0xff00ff00u;
  pairs[3] = __byte_perm(rest, 0, 0x2404);
}

// The scale of column group GROUP of 32 out of a row's word: the packer put the ue8m0 bytes one bit
// lower than bytes lie, group 0 on the exponent field of a float.
template <int GROUP>
__forceinline__ float scale_of(u32 word) {
  const u32 at_exponent = GROUP == 3 ? __byte_perm(word, 0, 0x0321) : word << (8 * GROUP);
  return __uint_as_float(at_exponent & 0x7f800000u);
}

// What makes a float of a job's sums: products of codes lack this factor.
constexpr float JOB_FACTOR = CODE_FACTOR * fp8::kF16Factor;

// A lane's share of a job, in registers: the stage that it came in is free for the next copy.
struct Job {
  uint4 codes[2][2];  // [16 rows][64 columns]: rows g, g + 8 of 32 columns, then of the next 32
  uint2 scales[2];    // rows g, g + 8

  __forceinline__ void load(const u8* job, int lane) {
#pragma unroll
    for (int m = 0; m < 2; ++m) {
#pragma unroll
      for (int k = 0; k < 2; ++k)
        codes[m][k] = *reinterpret_cast<const uint4*>(job + m * 1024 + k * 512 + lane * 16);
      scales[m] = *reinterpret_cast<const uint2*>(job + MOE_JOB_CODE_BYTES + m * 64 + lane / 4 * 8);
    }
  }
};

template <int GROUP>
__forceinline__ void multiply_group(float (&part)[2][4], const Job& job, const u8* x) {
  // Lane 4g + c owns columns 8c .. 8c + 7 of a group, of both operands: any order of columns will
  // do.
  const uint2 codes = *reinterpret_cast<const uint2*>(x + GROUP * 32);
  const u32 b[4] = {fp8::to_f16(codes.x), fp8::high_to_f16(codes.x), fp8::to_f16(codes.y),
                    fp8::high_to_f16(codes.y)};
#pragma unroll
  for (int m = 0; m < 2; ++m) {
    const uint4& words = job.codes[m][GROUP / 2];
    u32 upper[4], lower[4];
    codes_to_f16(GROUP % 2 == 0 ? words.x : words.z, upper);
    codes_to_f16(GROUP % 2 == 0 ? words.y : words.w, lower);
    float sums[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    mma::f16(sums, upper[0], lower[0], upper[1], lower[1], b[0], b[1]);
    mma::f16(sums, upper[2], lower[2], upper[3], lower[3], b[2], b[3]);
    const float first = scale_of<GROUP>(job.scales[m].x), second = scale_of<GROUP>(job.scales[m].y);
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const float scale = e < 2 ? first : second;
      part[m][e] = GROUP == 0 ? sums[e] * scale : fmaf(sums[e], scale, part[m][e]);
    }
  }
}

// sums += job * x, but for JOB_FACTOR. Rows g, g + 8 of 16 and tokens 2c, 2c + 1 as mma has them.
// @param x        this lane's token row, at its columns
// @param x_scale  of tokens 2c and 2c + 1
__forceinline__ void multiply(float (&sums)[2][4], const Job& job, const u8* x, float2 x_scale) {
  float part[2][4];
  multiply_group<0>(part, job, x);
  multiply_group<1>(part, job, x);
  multiply_group<2>(part, job, x);
  multiply_group<3>(part, job, x);
#pragma unroll
  for (int m = 0; m < 2; ++m)
#pragma unroll
    for (int e = 0; e < 4; ++e)
      sums[m][e] = fmaf(part[m][e], e % 2 == 0 ? x_scale.x : x_scale.y, sums[m][e]);
}

}  // namespace ingot::kernels::moe
