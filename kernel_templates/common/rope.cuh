#pragma once
// Rotary position embedding as the model defines it: the angle is the fp32 product of position and
// frequency, its cosine and sine are accurate for that fp32 number (about 1e6 at the longest
// context), the rotation is plain fp32 without fused multiply-add.
#include "common/types.cuh"

namespace ingot::kernels::rope {

struct Rotation {
  float cosine, sine;
};

// Correctly rounded but for about one angle in 10^8: evaluated in double and rounded once. Our own
// code, because what a compiler's sinf does depends on its options. |angle| < 2^30.
__forceinline__ Rotation rotation(float angle) {
  // angle = quarter * pi/2 + r, |r| <= pi/4; pi/2 in two doubles, 106 bits.
  const double x = angle;
  const double quarter = rint(x * 0.63661977236758138);
  double r = fma(-quarter, 1.5707963267948966, x);
  r = fma(-quarter, 6.123233995736766e-17, r);
  const double z = r * r;
  // Taylor series; the first term left out is below 2^-56 at pi/4.
  double s = -7.6471637318198165e-13;
  s = fma(s, z, 1.6059043836821613e-10);
  s = fma(s, z, -2.5052108385441719e-08);
  s = fma(s, z, 2.7557319223985893e-06);
  s = fma(s, z, -1.9841269841269841e-04);
  s = fma(s, z, 8.3333333333333332e-03);
  s = fma(s, z, -1.6666666666666666e-01);
  s = fma(s * z, r, r);
  double c = 4.7794773323873853e-14;
  c = fma(c, z, -1.1470745597729725e-11);
  c = fma(c, z, 2.0876756987868099e-09);
  c = fma(c, z, -2.7557319223985888e-07);
  c = fma(c, z, 2.4801587301587302e-05);
  c = fma(c, z, -1.3888888888888889e-03);
  c = fma(c, z, 4.1666666666666664e-02);
  c = fma(c, z, -0.5);
  c = fma(c, z, 1.0);
  const int n = static_cast<int>(quarter) & 3;
  const float sine = static_cast<float>(s), cosine = static_cast<float>(c);
  return {n == 0   ? cosine
          : n == 1 ? -sine
          : n == 2 ? -cosine
                   : sine,
          n == 0   ? sine
          : n == 1 ? cosine
          : n == 2 ? -sine
                   : -cosine};
}
__forceinline__ Rotation rotation(int position, float frequency) {
  return rotation(__fmul_rn(static_cast<float>(position), frequency));
}

// (a, b) turned by the angle; with `inverse` by its negative.
__forceinline__ float2 rotate(float a, float b, Rotation r, bool inverse) {
  const float sine = inverse ? -r.sine : r.sine;
  return make_float2(__fsub_rn(__fmul_rn(a, r.cosine), __fmul_rn(b, sine)),
                     __fadd_rn(__fmul_rn(a, sine), __fmul_rn(b, r.cosine)));
}

}  // namespace ingot::kernels::rope
