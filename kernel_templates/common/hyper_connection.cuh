#pragma once
// Hyper-connections: the coefficients of one token, and the streams behind a sublayer. Every kernel
// that makes a stream from another sublayer's output makes the same bits.
// Source: model specification section 3.5.
#include "common/approx.cuh"
#include "common/bf16.cuh"
#include "common/types.cuh"
#include "hc_pre.args.h"

namespace ingot::kernels::hc {

// Weights of the streams behind a sublayer, one token's: X'_k = post_k * f + sum_j comb_jk * X_j.
struct Expand {
  float post[HC_STREAMS];
  float comb[HC_STREAMS][HC_STREAMS];  // [source][destination]

  // @param post_row  [4], comb_row [16], 16-byte aligned
  static __forceinline__ Expand load(const float* post_row, const float* comb_row) {
    Expand e;
    const float4 p = *reinterpret_cast<const float4*>(post_row);
    e.post[0] = p.x, e.post[1] = p.y, e.post[2] = p.z, e.post[3] = p.w;
#pragma unroll
    for (int j = 0; j < HC_STREAMS; ++j) {
      const float4 row = reinterpret_cast<const float4*>(comb_row)[j];
      e.comb[j][0] = row.x, e.comb[j][1] = row.y, e.comb[j][2] = row.z, e.comb[j][3] = row.w;
    }
    return e;
  }
  __forceinline__ float stream(int k, const float (&x)[HC_STREAMS], float f) const {
    float sum = comb[0][k] * x[0];
#pragma unroll
    for (int j = 1; j < HC_STREAMS; ++j)
      sum = fmaf(comb[j][k], x[j], sum);
    return fmaf(post[k], f, sum);
  }
  // Two neighbouring channels of all streams, in place.
  __forceinline__ void apply(u32 (&pairs)[HC_STREAMS], u32 f) const {
    float low[HC_STREAMS], high[HC_STREAMS];
#pragma unroll
    for (int j = 0; j < HC_STREAMS; ++j) {
      low[j] = low_to_float(pairs[j]);
      high[j] = high_to_float(pairs[j]);
    }
#pragma unroll
    for (int k = 0; k < HC_STREAMS; ++k)
      pairs[k] = pack_bf16(stream(k, low, low_to_float(f)), stream(k, high, high_to_float(f)));
  }
};

__forceinline__ float sigmoid(float x) {
  return reciprocal_approx(1.0f + expf(-x));
}

// Row softmax + eps and a column division, then (row, column) divisions, `iterations` of each kind
// in all, of one token by one lane. A division by a sum is a product with its approximate
// reciprocal (1 ulp): the chain of 40 dependent divisions is what this costs.
__forceinline__ void sinkhorn(float (&c)[HC_STREAMS][HC_STREAMS], int iterations, float eps) {
  const auto divide_columns = [&] {
#pragma unroll
    for (int k = 0; k < HC_STREAMS; ++k) {
      const float inverse = reciprocal_approx(((c[0][k] + c[1][k]) + (c[2][k] + c[3][k])) + eps);
#pragma unroll
      for (int j = 0; j < HC_STREAMS; ++j)
        c[j][k] *= inverse;
    }
  };
#pragma unroll
  for (int j = 0; j < HC_STREAMS; ++j) {
    const float top = fmaxf(fmaxf(c[j][0], c[j][1]), fmaxf(c[j][2], c[j][3]));
#pragma unroll
    for (int k = 0; k < HC_STREAMS; ++k)
      c[j][k] = expf(c[j][k] - top);
    const float inverse = 1.0f / ((c[j][0] + c[j][1]) + (c[j][2] + c[j][3]));
#pragma unroll
    for (int k = 0; k < HC_STREAMS; ++k)
      c[j][k] = fmaf(c[j][k], inverse, eps);
  }
  divide_columns();
#pragma unroll 1
  for (int i = 1; i < iterations; ++i) {
#pragma unroll
    for (int j = 0; j < HC_STREAMS; ++j) {
      const float inverse = reciprocal_approx(((c[j][0] + c[j][1]) + (c[j][2] + c[j][3])) + eps);
#pragma unroll
      for (int k = 0; k < HC_STREAMS; ++k)
        c[j][k] *= inverse;
    }
    divide_columns();
  }
}

// The same behind the softmax, of one token by four neighbouring lanes of a whole warp: about half
// the time, for eight tokens instead of 32.
//
// Every matrix on the way is r_j * c_jk * s_k, so only r and s are kept: a row's division by
// r_j * (sum_k c_jk * s_k) + eps takes q_j = 1 / r_j to sum_k c_jk * s_k + eps * q_j, and p_k =
// 1 / s_k goes alike. All of this is a chain of dependent instructions, whose slow ones are
// reciprocals and what goes between lanes. So a lane does all rows, but one column; and rows need
// no reciprocal, since p_k * (q_0 q_1 q_2 q_3) is a sum of products. Between 1e-8 and 24 are all of
// these numbers, whatever the logits (from spreads of 0.3 to 1,000), and errors do not pile up.
// @param c     [source][destination] of this lane's token: softmax of the rows + eps
// @param own   column lane % 4 of it; what comes out
__forceinline__ void balance(const float (&c)[HC_STREAMS][HC_STREAMS], float (&own)[HC_STREAMS],
                             int iterations, float eps, int lane) {
  float q[HC_STREAMS], s[HC_STREAMS];
  float p = ((own[0] + own[1]) + (own[2] + own[3])) + eps;
  float own_s = reciprocal_approx(p);
#pragma unroll
  for (int j = 0; j < HC_STREAMS; ++j)
    q[j] = 1.0f;
#pragma unroll 1
  for (int i = 1; i < iterations; ++i) {
#pragma unroll
    for (int k = 0; k < HC_STREAMS; ++k)
      s[k] = __shfl_sync(0xffffffffu, own_s, (lane & ~3) + k);
#pragma unroll
    for (int j = 0; j < HC_STREAMS; ++j) {
      float sum = eps * q[j];
#pragma unroll
      for (int k = 0; k < HC_STREAMS; ++k)
        sum = fmaf(c[j][k], s[k], sum);
      q[j] = sum;
    }
    const float low = q[0] * q[1], high = q[2] * q[3], all = low * high;
    const float first = fmaf(own[0], q[1], own[1] * q[0]);
    const float second = fmaf(own[2], q[3], own[3] * q[2]);
    const float column = fmaf(first, high, fmaf(second, low, eps * all * p));
    own_s = all * reciprocal_approx(column);
    p = column * reciprocal_approx(all);
  }
#pragma unroll
  for (int j = 0; j < HC_STREAMS; ++j)
    own[j] *= reciprocal_approx(q[j]) * own_s;
}

}  // namespace ingot::kernels::hc
